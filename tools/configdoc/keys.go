package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/trimtab/trimtab/tuner/config"
	"github.com/trimtab/trimtab/tuner/enrolment"
)

// key is a key of the config, at the place where the example has it.
type key struct {
	name  string // "gpu.idleAfter", "match[].cpu.min"
	kind  reflect.Type
	value string // its default, as the example writes it; "": none, in rules
	text  string
}

// section is a block of keys, or the keys that stand in none.
type section struct {
	title, text string
	keys        []key
}

// sections reads the example: comments say what a key does.
func sections() ([]section, error) {
	file, rules, _ := strings.Cut(config.Example, "#   match:\n")
	rules, _, _ = strings.Cut(rules, "match: []")
	var host, match yaml.Node
	if err := yaml.Unmarshal([]byte(file), &host); err != nil {
		return nil, fmt.Errorf("the example: %w", err)
	}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll("\n"+rules, "\n#     ", "\n")), &match); err != nil {
		return nil, fmt.Errorf("the example's rules: %w", err)
	}
	out := []section{{title: "The host"}}
	root := host.Content[0]
	for i := 0; i+1 < len(root.Content); i += 2 {
		name, value := root.Content[i], root.Content[i+1]
		field := fieldOf(reflect.TypeFor[config.Config](), name.Value)
		if value.Kind == yaml.MappingNode {
			out = append(out, section{name.Value, comment(name.HeadComment), leaves(name.Value, field, name, value)})
		} else {
			out[0].keys = append(out[0].keys, leaves(name.Value, field, name, value)...)
		}
	}
	out[0].keys[0].text = lastParagraph(out[0].keys[0].text)
	text := "Rules enrol containers by image, name, compose project or label. All patterns of a rule must fit, with `*` and `?` as wildcards. The first rule that fits wins. There are none by default."
	return append(out, section{"match", text, ruleKeys(match.Content[0])}), nil
}

// leaves are the keys at and below a node.
func leaves(path string, kind reflect.Type, name, value *yaml.Node) (out []key) {
	if value.Kind != yaml.MappingNode || kind.Kind() != reflect.Struct {
		text, _ := yaml.Marshal(&yaml.Node{Kind: value.Kind, Tag: value.Tag, Value: value.Value, Content: value.Content, Style: value.Style})
		said := value.LineComment
		if said == "" {
			said = name.LineComment
		}
		if said == "" {
			said = name.HeadComment
		}
		return []key{{path, kind, strings.TrimSpace(string(text)), comment(said)}}
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		n := value.Content[i]
		out = append(out, leaves(path+"."+n.Value, fieldOf(kind, n.Value), n, value.Content[i+1])...)
	}
	return out
}

// ruleKeys are the keys of a rule, each as the first of the example's rules that says something of it.
func ruleKeys(rules *yaml.Node) []key {
	texts := map[string]string{}
	for _, rule := range rules.Content {
		gather(texts, "match[]", rule)
	}
	return typeKeys(texts, "match[]", reflect.TypeFor[enrolment.Rule]())
}

// gather takes comments by key. A block's own goes for the keys in it.
func gather(texts map[string]string, path string, block *yaml.Node) {
	for i := 0; i+1 < len(block.Content); i += 2 {
		name, value := block.Content[i], block.Content[i+1]
		at := path + "." + name.Value
		if texts[at] == "" {
			texts[at] = comment(value.LineComment + name.LineComment)
		}
		if value.Kind == yaml.MappingNode {
			gather(texts, at, value)
		}
	}
}

// typeKeys are the leaves of a type, in the order of its fields.
func typeKeys(texts map[string]string, path string, kind reflect.Type) (out []key) {
	for f := range kind.Fields() {
		at := path + "." + f.Tag.Get("yaml")
		if f.Type.Kind() == reflect.Struct {
			for _, k := range typeKeys(texts, at, f.Type) {
				if k.text == "" {
					k.text = texts[at]
				}
				out = append(out, k)
			}
			continue
		}
		out = append(out, key{name: at, kind: f.Type, text: texts[at]})
	}
	return out
}

func fieldOf(kind reflect.Type, name string) reflect.Type {
	for f := range kind.Fields() {
		if f.Tag.Get("yaml") == name {
			return f.Type
		}
	}
	return nil
}

// comment is what a comment says, without its marks.
func comment(s string) string {
	lines := strings.Split(lastParagraph(s), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.TrimPrefix(line, "#"))
	}
	return strings.Join(lines, " ")
}

// lastParagraph leaves out what a file says before its first key.
func lastParagraph(s string) string {
	return s[strings.LastIndex(s, "\n\n")+1:]
}

// typed names the key's type, by its unit where it has one.
func (k key) typed() string {
	switch t := k.kind; t {
	case reflect.TypeFor[config.Duration]():
		return "time"
	case reflect.TypeFor[enrolment.Bytes]():
		return "memory"
	case reflect.TypeFor[config.CPUAmount]():
		return "CPUs, or a share"
	case reflect.TypeFor[config.MemoryAmount]():
		return "memory, or a share"
	}
	if k.kind.Kind() == reflect.Float64 && strings.Contains(k.name, "cpu") {
		return "CPUs"
	}
	return map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Int: "whole number", reflect.Float64: "share",
		reflect.String: "text", reflect.Slice: "list of texts", reflect.Map: "block of texts"}[k.kind.Kind()]
}

// standing is the default, as code.
func (k key) standing() string {
	if k.value == "" {
		return ""
	}
	return "`" + k.value + "`"
}

// takenBy says whether a reload takes the key, by the code that asks for a restart.
func (k key) takenBy() string {
	was, now := config.Default(), config.Default()
	if strings.HasPrefix(k.name, "match[]") {
		return "reload"
	}
	at := reflect.ValueOf(&now).Elem()
	for name := range strings.SplitSeq(k.name, ".") {
		at = at.Field(slices.IndexFunc(slices.Collect(at.Type().Fields()), func(f reflect.StructField) bool { return f.Tag.Get("yaml") == name }))
	}
	other(at)
	if len(config.NeedsRestart(was, now)) > 0 {
		return "restart"
	}
	return "reload"
}

// other makes of a value one that differs.
func other(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.String:
		v.SetString(v.String() + "-")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"A": "b"}))
	case reflect.Struct:
		other(v.Field(0))
	}
}
