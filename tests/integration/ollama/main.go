// Executes the TEMPLATE of a Modelfile as Ollama does: its functions, its data, its way of merging
// messages and of finding the tag that tool calls begin with.
//
//	go run main.go MODELFILE < conversations.json
//
// A line of JSON for each: {"text": ..., "tag": ..., "thinking": [..., ...]}
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"strings"
	"text/template"
	"text/template/parse"
)

// What Ollama keeps of a request. What it does not know of is lost; maps forget their order.
type Property struct {
	AnyOf       []Property          `json:"anyOf,omitempty"`
	Type        any                 `json:"type,omitempty"`
	Items       any                 `json:"items,omitempty"`
	Description string              `json:"description,omitempty"`
	Enum        []any               `json:"enum,omitempty"`
	Properties  map[string]Property `json:"properties,omitempty"`
	Required    []string            `json:"required,omitempty"`
}

type Parameters struct {
	Type       string              `json:"type"`
	Defs       any                 `json:"$defs,omitempty"`
	Items      any                 `json:"items,omitempty"`
	Required   []string            `json:"required,omitempty"`
	Properties map[string]Property `json:"properties"`
}

type Function struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Parameters  Parameters `json:"parameters"`
}

type Tool struct {
	Type     string   `json:"type"`
	Items    any      `json:"items,omitempty"`
	Function Function `json:"function"`
}

type Arguments map[string]any

func (a Arguments) String() string { return toJSON(map[string]any(a)) }

type CalledFunction struct {
	Index     int
	Name      string
	Arguments Arguments
}

type ToolCall struct {
	ID       string
	Function CalledFunction
}

type Message struct {
	Role       string
	Content    string
	Thinking   string
	ToolCalls  []ToolCall `json:"tool_calls"`
	ToolName   string
	ToolCallID string `json:"tool_call_id"`
}

type Conversation struct {
	Messages []*Message
	Tools    []Tool
}

func toJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// collate joins the system messages, and neighbours of one role other than tool.
func collate(messages []*Message) (string, []*Message) {
	var system []string
	var collated []*Message
	for _, m := range messages {
		if m.Role == "system" {
			system = append(system, m.Content)
		}
		last := len(collated) - 1
		if last >= 0 && collated[last].Role == m.Role && m.Role != "tool" {
			collated[last].Content += "\n\n" + m.Content
		} else {
			collated = append(collated, m)
		}
	}
	return strings.Join(system, "\n\n"), collated
}

// templateOf is the value of TEMPLATE: between three quotes.
func templateOf(modelfile string) string {
	_, rest, found := strings.Cut(modelfile, `TEMPLATE """`)
	text, after, ended := strings.Cut(rest, `"""`)
	if !found || !ended || strings.TrimSpace(after) != "" {
		log.Fatal("no TEMPLATE")
	}
	return text
}

// callTag is the first text behind `if .ToolCalls`, up to a brace; "{" where Ollama finds none.
func callTag(nodes []parse.Node) string {
	node := findIf(nodes)
	if node == nil {
		return "{"
	}
	text := firstText(node.List.Nodes)
	tag, _, _ := strings.Cut(text, "{")
	if tag = strings.TrimSpace(tag); tag == "" {
		return "{"
	}
	return tag
}

func branches(n parse.Node) *parse.BranchNode {
	switch n := n.(type) {
	case *parse.IfNode:
		return &n.BranchNode
	case *parse.RangeNode:
		return &n.BranchNode
	case *parse.WithNode:
		return &n.BranchNode
	}
	return nil
}

func findIf(nodes []parse.Node) *parse.IfNode {
	for _, node := range nodes {
		if n, ok := node.(*parse.IfNode); ok {
			for _, command := range n.Pipe.Cmds {
				for _, argument := range command.Args {
					field, ok := argument.(*parse.FieldNode)
					if ok && strings.Join(field.Ident, " ") == "ToolCalls" {
						return n
					}
				}
			}
		}
		branch := branches(node)
		if branch == nil {
			continue
		}
		if found := findIf(branch.List.Nodes); found != nil {
			return found
		}
		if branch.ElseList != nil {
			if found := findIf(branch.ElseList.Nodes); found != nil {
				return found
			}
		}
	}
	return nil
}

func firstText(nodes []parse.Node) string {
	for _, node := range nodes {
		if n, ok := node.(*parse.TextNode); ok {
			if text := string(n.Text); strings.TrimSpace(text) != "" {
				return text
			}
			continue
		}
		branch := branches(node)
		if branch == nil {
			return "" // an action
		}
		if text := firstText(branch.List.Nodes); text != "" || branch.ElseList == nil {
			return text
		}
		return firstText(branch.ElseList.Nodes)
	}
	return ""
}

// thinkingTags are the texts at both ends of what holds `.Thinking`.
func thinkingTags(nodes []parse.Node) []string {
	for _, node := range nodes {
		if n, ok := node.(*parse.ActionNode); ok && n.Pipe.String() == ".Thinking" {
			first, _ := nodes[0].(*parse.TextNode)
			last, _ := nodes[len(nodes)-1].(*parse.TextNode)
			if first == nil || last == nil {
				return []string{"", ""}
			}
			return []string{strings.TrimSpace(first.String()), strings.TrimSpace(last.String())}
		}
		if branch := branches(node); branch != nil {
			if found := thinkingTags(branch.List.Nodes); found != nil {
				return found
			}
			if branch.ElseList != nil {
				if found := thinkingTags(branch.ElseList.Nodes); found != nil {
					return found
				}
			}
		}
	}
	return nil
}

func main() {
	modelfile, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	parsed, err := template.New("").Option("missingkey=zero").
		Funcs(template.FuncMap{"json": toJSON}).Parse(templateOf(string(modelfile)))
	if err != nil {
		log.Fatal(err)
	}
	var conversations []Conversation
	if err := json.NewDecoder(os.Stdin).Decode(&conversations); err != nil {
		log.Fatal(err)
	}
	output := json.NewEncoder(os.Stdout)
	for _, c := range conversations {
		system, messages := collate(c.Messages)
		var text bytes.Buffer
		data := map[string]any{
			"System": system, "Messages": messages, "Tools": c.Tools, "Response": "",
			"Think": false, "ThinkLevel": "", "IsThinkSet": false,
		}
		if err := parsed.Execute(&text, data); err != nil {
			log.Fatal(err)
		}
		nodes := parsed.Tree.Root.Nodes
		found := map[string]any{
			"text": text.String(), "tag": callTag(nodes), "thinking": thinkingTags(nodes),
		}
		if err := output.Encode(found); err != nil {
			log.Fatal(err)
		}
	}
}
