// Command openapi writes the description of the API, OpenAPI 3.1, from the table of its operations
// and the Go types that they name, so that it cannot lag behind the code.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/trimtab/trimtab/tuner/api"
	"github.com/trimtab/trimtab/tuner/event"
	"github.com/trimtab/trimtab/tuner/identity"
	"github.com/trimtab/trimtab/tuner/profiles"
)

const module = "github.com/trimtab/trimtab"

func main() {
	out := flag.String("o", "tuner/api/openapi.json", "file to write")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	text, err := document()
	if err != nil {
		return err
	}
	return os.WriteFile(out, text, 0o644)
}

// object is one of JSON; encoding/json sorts its keys.
type object = map[string]any

// document is the whole of it. It is made in the module's folder, where the comments are.
func document() ([]byte, error) {
	s, err := newSchemas()
	if err != nil {
		return nil, err
	}
	paths := object{}
	failure := s.body("what went wrong, and what to do about it", api.Error{})
	for _, op := range api.Operations() {
		at, ok := paths[op.Path].(object)
		if !ok {
			at = object{}
			paths[op.Path] = at
		}
		answer := object{"description": "a file", "content": object{"application/octet-stream": object{}}}
		if op.Answer != nil {
			answer = s.body("the answer", op.Answer)
		}
		route := object{"summary": op.Summary, "operationId": operationID(op), "responses": object{"200": answer, "default": failure}}
		if all := parameters(op); len(all) > 0 {
			route["parameters"] = all
		}
		if op.Body != nil {
			body := s.body("what is asked for", op.Body)
			body["required"] = true
			route["requestBody"] = body
		}
		at[strings.ToLower(op.Method)] = route
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	told := s.body("an event of those that notify.webhook asks for; docs/notify.md", event.Event{})
	told["required"] = true
	webhooks := object{"event": object{"post": object{"summary": "What trimtab tells of a decision, or of itself", "operationId": "webhookEvent", "requestBody": told,
		"responses": object{"2XX": object{"description": "taken"}}}}}
	err = enc.Encode(object{"openapi": "3.1.0", "paths": paths, "webhooks": webhooks, "components": object{"schemas": s.all},
		"info": object{"title": "trimtab", "version": "v1", "description": "HTTP over the Unix socket /run/trimtab/trimtab.sock. Within v1 fields and routes are only ever added: ignore what you do not know.",
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers": []object{{"url": "http://trimtab", "description": "the host's name is not read"}}})
	return b.Bytes(), err
}

// operationID is made from method and path: getContainersName.
func operationID(op api.Operation) string {
	id := "get"
	if op.Method == http.MethodPost {
		id = "post"
	}
	for _, part := range strings.FieldsFunc(strings.TrimPrefix(op.Path, "/v1"), func(r rune) bool { return strings.ContainsRune("/{}", r) }) {
		id += strings.ToUpper(part[:1]) + part[1:]
	}
	return id
}

func parameters(op api.Operation) (out []object) {
	for _, part := range strings.Split(op.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			out = append(out, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	for _, p := range op.Query {
		out = append(out, object{"name": p.Name, "in": "query", "required": p.Required, "description": p.Description, "schema": object{"type": p.Type}})
	}
	return out
}

// schemas are those of the types that were met.
type schemas struct {
	reflector *jsonschema.Reflector
	all       object
}

// newSchemas reads what comments say of types and fields.
func newSchemas() (*schemas, error) {
	r := &jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: true, Namer: named, Mapper: mapped}
	for _, dir := range []string{"policies", "runtime", "tuner/state", "tuner/api", "tuner/advice", "tuner/profiles", "tuner/series", "tuner/event"} {
		if err := r.AddGoComments(module, dir); err != nil {
			return nil, fmt.Errorf("comments of %s: %w", dir, err)
		}
	}
	s := &schemas{r, object{}}
	s.body("", profiles.End{}) // which mapped refers to
	return s, nil
}

// mapped is the schema of a type that writes its JSON itself; nil: it does not.
func mapped(t reflect.Type) *jsonschema.Schema {
	r := jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: true, ExpandedStruct: true}
	switch t {
	case reflect.TypeFor[profiles.Costs]():
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Ref: "#/$defs/policies.Cost"}}
	case reflect.TypeFor[profiles.Ends]():
		return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Ref: "#/$defs/profiles.End"}}
	case reflect.TypeFor[identity.Hash](), reflect.TypeFor[profiles.RunID]():
		return &jsonschema.Schema{Type: "string"}
	case reflect.TypeFor[profiles.Print]():
	default:
		return nil
	}
	s := r.Reflect(struct {
		Unit   string             `json:"unit"`
		Image  string             `json:"image,omitempty"`
		Device string             `json:"device,omitempty"`
		Steps  float64            `json:"steps"`
		Values map[string]float64 `json:"values"`
	}{})
	s.Version, s.Description = "", "What a job looks like: its values by attribute. One that was not read is not there."
	return s
}

// named tells types of one name in several packages apart: state.Container.
func named(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	return path.Base(t.PkgPath()) + "." + t.Name()
}

// body is a response or a request that holds a value as JSON.
func (s *schemas) body(description string, v any) object {
	t := reflect.TypeOf(v)
	schema := s.reflector.ReflectFromType(t)
	for name, def := range schema.Definitions {
		nullable(def)
		s.all[name] = plain(def)
	}
	var ref any
	if t.Name() != "" {
		ref = object{"$ref": "#/components/schemas/" + named(t)}
	} else {
		ref = plain(schema)
	}
	return object{"description": description, "content": object{"application/json": object{"schema": ref}}}
}

// nullable: a list or a table that is always there is null where it is empty.
func nullable(s *jsonschema.Schema) {
	if s.Properties == nil {
		return
	}
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		if v := p.Value; slices.Contains(s.Required, p.Key) && (v.Type == "array" && v.MaxItems == nil || v.Type == "object") {
			p.Value = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{v, {Type: "null"}}, Description: v.Description}
			v.Description = ""
		}
	}
}

// plain is a schema as JSON, with references to where OpenAPI keeps them.
func plain(s *jsonschema.Schema) any {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // of a schema that the library made
	}
	var out object
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`)), &out); err != nil {
		panic(err)
	}
	delete(out, "$schema")
	delete(out, "$defs")
	return out
}
