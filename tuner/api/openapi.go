package api

import (
	"context"
	_ "embed" // the description of the API
	"net/http"
	"time"

	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

//go:embed openapi.json
var openAPI string

// OpenAPI describes the API by OpenAPI 3.1, in JSON: routes, parameters, bodies and answers. It is
// generated from Operations and the types that they name (go run ./tools/openapi).
func OpenAPI() string { return openAPI }

// Operation is a route: what it takes and answers, and who may ask.
type Operation struct {
	Method, Path string
	Summary      string
	Query        []Parameter
	// Body and Answer are values of the types that are sent as JSON; a nil Body: none is read. A
	// nil Answer: it is a file.
	Body, Answer any

	access  Access
	timeout time.Duration
	answer  answerFunc
	large   bool // see largeAnswers
}

// Parameter is one of a query.
type Parameter struct {
	Name, Type, Description string // Type is JSON Schema's
	Required                bool
}

// Operations are all routes of the server, in its order.
func Operations() []Operation { return (&Server{}).routes() }

func (s *Server) routes() []Operation {
	name := Parameter{Name: "name", Type: "string", Description: "of one container: its name, ID, key, or the beginning of its ID"}
	since := Parameter{Name: "since", Type: "string", Description: "how long ago (2h, 7d), a date or a time"}
	return []Operation{
		{Method: http.MethodGet, Path: "/healthz", Summary: "Whether the daemon has a state to tell of", Answer: map[string]bool{}, access: AccessNone, timeout: LookTimeout, answer: s.look(healthz)},
		looking("/v1/status", "The daemon, its parts, the node, and counters", Status{}, s.whole("/v1/status", status)),
		looking("/v1/containers", "Every running container", Containers{}, s.whole("/v1/containers", containers)),
		looking("/v1/list", "A line of each running container", List{}, s.whole("/v1/list", listed)),
		looking("/v1/containers/{name}", "One running container", state.Container{}, s.look(container)),
		looking("/v1/advice", "What trimtab cannot change, with the lines to paste", Advice{}, s.look(advices), name),
		looking("/v1/devices", "GPUs and who holds them", Devices{}, s.whole("/v1/devices", devices)),
		looking("/v1/gpus", "Each container's GPUs, granted and visible", GPUs{}, s.gpus),
		large(looking("/v1/fingerprints", "The known jobs", Fingerprints{}, s.fingerprints)),
		large(looking("/v1/history", "What was done and would have been done, oldest first", History{}, s.history,
			since, Parameter{Name: "until", Type: "string", Description: "nothing after it, written as since"}, Parameter{Name: "changed", Type: "boolean", Description: "only values that changed"},
			Parameter{Name: "name", Type: "string", Description: "of all containers that bore a name, or of one by its key, or by its ID while it runs"}, Parameter{Name: "limit", Type: "integer", Description: "only the newest so many, 1 to 10000; by default 10000"})),
		looking("/v1/series", "A container's last hour", series.Series{}, s.look(s.series), Parameter{Name: "name", Type: "string", Description: name.Description, Required: true}),
		large(looking("/v1/report", "What devices and CPUs were held for", state.Report{}, s.report,
			since, Parameter{Name: "by", Type: "string", Description: "team, image, container or cause"})),
		{Method: http.MethodGet, Path: "/v1/record", Summary: "A recording of the next stretch, as a file", access: AccessRead, timeout: maxRecording + LookTimeout, answer: s.record,
			Query: []Parameter{{Name: "seconds", Type: "integer", Description: "its length, 1 to 3600", Required: true}}},
		{Method: http.MethodPost, Path: "/v1/place", Summary: "Rank devices for jobs that are to start, and hold the best", Body: state.PlaceRequest{}, Answer: state.Placement{},
			access: AccessRead, timeout: LookTimeout, answer: s.place},
		acting(s, "/v1/enable", "Enrol running containers", Backend.Enable),
		acting(s, "/v1/disable", "End what was enabled", Backend.Disable),
		acting(s, "/v1/restore", "Give originals back, and hold", restore),
		acting(s, "/v1/resume", "Lift a hold, or all and a pause", resume),
		acting(s, "/v1/pause", "Freeze every value as it stands", pause),
		acting(s, "/v1/fingerprints/forget", "Forget known jobs", Backend.Forget),
		acting(s, "/v1/gpus/hide", "Hide GPUs from a running container", changeGPU(Backend.HideGPU).checked),
		acting(s, "/v1/gpus/show", "Show a running container GPUs again", changeGPU(Backend.ShowGPU).checked),
	}
}

// looking is a route for who may look; answer is what f answers with.
func looking(path, summary string, answer any, f answerFunc, query ...Parameter) Operation {
	return Operation{Method: http.MethodGet, Path: path, Summary: summary, Query: query, Answer: answer, access: AccessRead, timeout: LookTimeout, answer: f}
}

func large(o Operation) Operation {
	o.large = true
	return o
}

// acting is a route for who may act: it answers by what became of what a body asks for.
func acting[T any](s *Server, path, summary string, do func(Backend, context.Context, T) ([]state.ActionResult, error)) Operation {
	var body T
	return Operation{Method: http.MethodPost, Path: path, Summary: summary, Body: body, Answer: Results{}, access: AccessWrite, timeout: ActTimeout,
		answer: func(_ http.ResponseWriter, r *http.Request) (any, error) {
			var req T
			if err := decode(r, &req); err != nil {
				return nil, err
			}
			all, err := do(s.backend, r.Context(), req)
			if err != nil {
				return nil, err
			}
			return Results{list(all)}, nil
		}}
}
