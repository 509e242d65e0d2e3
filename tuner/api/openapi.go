package api

import (
	_ "embed" // the description of the API
	"net/http"
	"slices"

	"github.com/trimtab/trimtab/tuner/series"
	"github.com/trimtab/trimtab/tuner/state"
)

//go:embed openapi.json
var openAPI string

// OpenAPI describes the API by OpenAPI 3.1, in JSON: routes, parameters, bodies and answers. It is
// generated from Operations and the types that they name (go run ./tools/openapi).
func OpenAPI() string { return openAPI }

// Operation is what a route takes and answers.
type Operation struct {
	Method, Path string
	Summary      string
	Query        []Parameter
	// Body and Answer are values of the types that are sent as JSON; a nil Body: none is read. A
	// nil Answer: it is a file.
	Body, Answer any
}

// Parameter is one of a query.
type Parameter struct {
	Name, Type, Description string // Type is JSON Schema's
	Required                bool
}

// Operations are all routes of the server, in its order.
func Operations() []Operation {
	name := Parameter{Name: "name", Type: "string", Description: "of one container: its name, ID, key, or the beginning of its ID"}
	gpus := []Operation{
		{Method: http.MethodPost, Path: "/v1/gpus/hide", Summary: "Hide GPUs from a running container", Body: state.GPURequest{}, Answer: Results{}},
		{Method: http.MethodPost, Path: "/v1/gpus/show", Summary: "Show a running container GPUs again", Body: state.GPURequest{}, Answer: Results{}},
	}
	return slices.Concat([]Operation{
		{Method: http.MethodGet, Path: "/healthz", Summary: "Whether the daemon has a state to tell of", Answer: map[string]bool{}},
		{Method: http.MethodGet, Path: "/v1/status", Summary: "The daemon, its parts, the node, and counters", Answer: Status{}},
		{Method: http.MethodGet, Path: "/v1/containers", Summary: "Every running container", Answer: Containers{}},
		{Method: http.MethodGet, Path: "/v1/containers/{name}", Summary: "One running container", Answer: state.Container{}},
		{Method: http.MethodGet, Path: "/v1/advice", Summary: "What trimtab cannot change, with the lines to paste", Query: []Parameter{name}, Answer: Advice{}},
		{Method: http.MethodGet, Path: "/v1/devices", Summary: "GPUs and who holds them", Answer: Devices{}},
		{Method: http.MethodGet, Path: "/v1/gpus", Summary: "Each container's GPUs, granted and visible", Answer: GPUs{}},
		{Method: http.MethodGet, Path: "/v1/fingerprints", Summary: "The known jobs", Answer: Fingerprints{}},
		{Method: http.MethodGet, Path: "/v1/history", Summary: "What was done and would have been done, oldest first", Answer: History{}, Query: []Parameter{
			{Name: "since", Type: "string", Description: "how long ago (2h, 7d), a date or a time"}, {Name: "changed", Type: "boolean", Description: "only values that changed"},
			{Name: "name", Type: "string", Description: "of one container"}, {Name: "limit", Type: "integer", Description: "only the newest so many"}}},
		{Method: http.MethodGet, Path: "/v1/series", Summary: "A container's last hour", Answer: series.Series{}, Query: []Parameter{{Name: "name", Type: "string", Description: name.Description, Required: true}}},
		{Method: http.MethodGet, Path: "/v1/report", Summary: "What devices and CPUs were held for", Answer: state.Report{}, Query: []Parameter{
			{Name: "since", Type: "string", Description: "how long ago (2h, 7d), a date or a time"}, {Name: "by", Type: "string", Description: "team, image, container or cause"}}},
		{Method: http.MethodGet, Path: "/v1/record", Summary: "A recording of the next stretch, as a file", Query: []Parameter{{Name: "seconds", Type: "integer", Description: "its length, 1 to 3600", Required: true}}},
		{Method: http.MethodPost, Path: "/v1/place", Summary: "Rank devices for jobs that are to start, and hold the best", Body: state.PlaceRequest{}, Answer: state.Placement{}},
		{Method: http.MethodPost, Path: "/v1/enable", Summary: "Enrol running containers", Body: state.EnableRequest{}, Answer: Results{}},
		{Method: http.MethodPost, Path: "/v1/disable", Summary: "End what was enabled", Body: state.EnableRequest{}, Answer: Results{}},
		{Method: http.MethodPost, Path: "/v1/restore", Summary: "Give originals back, and hold", Body: NameRequest{}, Answer: Results{}},
		{Method: http.MethodPost, Path: "/v1/resume", Summary: "Lift a hold, or all and a pause", Body: NameRequest{}, Answer: Results{}},
		{Method: http.MethodPost, Path: "/v1/pause", Summary: "Freeze every value as it stands", Body: struct{}{}, Answer: Results{}},
		{Method: http.MethodPost, Path: "/v1/fingerprints/forget", Summary: "Forget known jobs", Body: state.ForgetRequest{}, Answer: Results{}},
	}, gpus)
}
