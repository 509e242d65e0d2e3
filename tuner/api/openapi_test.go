package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/state"
)

// fill sets all that v holds to something: a list of one, a table of one, no zero.
func fill(v reflect.Value, deep int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), deep)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), deep)
			}
		}
	case reflect.Slice:
		if deep > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), deep-1)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), deep)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, deep)
		fill(value, deep)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64, reflect.Float32:
		v.SetFloat(0.5)
	default:
		if v.CanInt() {
			v.SetInt(7)
		} else if v.CanUint() {
			v.SetUint(7)
		}
	}
}

func filled[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem(), 4)
	return v
}

// full answers with everything that there is to say; deep 0: with empty lists.
type full struct {
	fake
	deep int
}

func made[T any](f full) (out []T) {
	if f.deep > 0 {
		out = append(out, filled[T]())
	}
	return out
}

func (f full) History(context.Context, api.HistoryQuery) ([]state.Record, error) {
	return made[state.Record](f), nil
}

func (f full) Fingerprints(context.Context) ([]state.Fingerprint, error) {
	return made[state.Fingerprint](f), nil
}

func (f full) GPUs(context.Context) ([]state.GPUVisibility, error) {
	return made[state.GPUVisibility](f), nil
}

// described is the schema that the description has of a route's answer.
func described(t *testing.T, c *jsonschema.Compiler, op api.Operation, status string) *jsonschema.Schema {
	t.Helper()
	at := "openapi.json#/paths/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(op.Path) + "/" + strings.ToLower(op.Method) + "/responses/" + status + "/content/application~1json/schema"
	s, err := c.Compile(at)
	if err != nil {
		t.Fatalf("%s %s: %v", op.Method, op.Path, err)
	}
	return s
}

// TestAnswersFitTheirDescription: each route of a running server, with everything in its answer and
// with nothing, and what it says when it fails.
func TestAnswersFitTheirDescription(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(api.OpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	everything, nothing := filled[state.Snapshot](), state.Snapshot{Containers: []state.Container{{Key: "x", Name: "x"}}}
	lent(&everything.Containers[0])
	everything.UnixNs, everything.Node.CPUs = 7200e9, 8
	for name, b := range map[string]full{"everything": {fake{snapshot: &everything}, 4}, "nothing": {fake{snapshot: &nothing}, 0}} {
		h := rawClient(start(t, &b))
		for _, op := range api.Operations() {
			status, answer := call(t, h, op, strings.ReplaceAll(op.Path, "{name}", "x"))
			if status != http.StatusOK {
				t.Errorf("%s: %s %s: status %d: %s", name, op.Method, op.Path, status, answer)
				continue
			}
			if op.Answer != nil {
				fits(t, name, op, described(t, c, op, "200"), answer)
			}
		}
		op := api.Operation{Method: http.MethodGet, Path: "/v1/containers/{name}"}
		if status, answer := call(t, h, op, "/v1/containers/none"); status != http.StatusNotFound {
			t.Errorf("status %d", status)
		} else {
			fits(t, name, op, described(t, c, op, "default"), answer)
		}
	}
}

func fits(t *testing.T, name string, op api.Operation, s *jsonschema.Schema, answer []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(answer))
	if err != nil {
		t.Fatalf("%s: %s %s: %v", name, op.Method, op.Path, err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%s: %s %s: %v\n%.2000s", name, op.Method, op.Path, err, answer)
	}
}

// call asks a route with the parameters and the body that its description has.
func call(t *testing.T, h *http.Client, op api.Operation, path string) (int, []byte) {
	t.Helper()
	var body io.Reader
	switch req := op.Body.(type) {
	case nil:
	case state.GPURequest:
		req.Name, req.All = "x", true
		text, _ := json.Marshal(req)
		body = bytes.NewReader(text)
	case state.PlaceRequest:
		req.Jobs = []state.PlaceJob{{Image: "x"}}
		text, _ := json.Marshal(req)
		body = bytes.NewReader(text)
	default:
		text, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(text)
	}
	query := ""
	for _, p := range op.Query {
		text := "2h"
		if p.Name == "by" {
			text = "team"
		}
		query += map[string]string{"string": "&" + p.Name + "=" + text, "integer": "&" + p.Name + "=1", "boolean": "&" + p.Name + "=true"}[p.Type]
	}
	if op.Path == "/v1/advice" || op.Path == "/v1/series" {
		query = "name=x"
	}
	r, err := http.NewRequestWithContext(t.Context(), op.Method, "http://x"+path+"?"+strings.TrimPrefix(query, "&"), body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := h.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", op.Method, op.Path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, text
}
