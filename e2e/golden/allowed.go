package golden

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// Allowed are differences with one reason: those of each of its requests or resources at each of its paths. Each pair must occur.
type Allowed struct {
	// Request has names of steps, Path locations in their responses. An asterisk matches any text.
	Request Patterns `json:"request"`
	// Resource, instead of Request, has resources like pods or deployments/scale: Path is then a location in their objects, alone or in lists,
	// tables and events.
	Resource Patterns `json:"resource"`
	Path     Patterns `json:"path"`
	// Want and Have are the only values that may differ, of Kubernetes and of monopod. They are optional, except at the path code.
	Want any `json:"want"`
	Have any `json:"have"`
	// Lacks is the only server that may have no value there: kubernetes or monopod. It is optional, except for a resource whose path has an
	// asterisk other than the key of a list.
	Lacks  string `json:"lacks"`
	Reason string `json:"reason"`

	// used has the pairs of requests or resources and paths that allowed a difference.
	used map[[2]string]bool
}

// Patterns is a list, or a single text.
type Patterns []string

// UnmarshalJSON reads a list or a text.
func (p *Patterns) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*p = Patterns{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(p))
}

// LoadAllowed reads an allow-list.
func LoadAllowed(file string) ([]*Allowed, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*Allowed
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	seen := map[[2]string]bool{}
	for _, a := range all {
		a.used = map[[2]string]bool{}
		if err := a.check(); err != nil {
			return nil, fmt.Errorf("%s: %q, %q: %w", file, a.whose(), a.Path, err)
		}
		for _, pair := range a.pairs() {
			if seen[pair] {
				return nil, fmt.Errorf("%s: %q is there twice", file, pair)
			}
			seen[pair] = true
		}
	}
	return all, nil
}

// check refuses entries that would hide more than their reason explains.
func (a *Allowed) check() error {
	if (len(a.Request) == 0) == (len(a.Resource) == 0) || len(a.Path) == 0 || a.Reason == "" {
		return errors.New("an entry needs requests or resources, paths and a reason")
	}
	if a.Lacks != "" && a.Lacks != "kubernetes" && a.Lacks != "monopod" {
		return errors.New("kubernetes or monopod lacks values")
	}
	for _, pair := range a.pairs() {
		request, at := pair[0], pair[1]
		switch {
		case strings.Trim(request, "*") == "":
			return errors.New("name the requests")
		case len(a.Resource) > 0 && (strings.Contains(request, "*") || strings.Contains(strings.ReplaceAll(at, "[*]", ""), "*") && a.Lacks == ""):
			return errors.New("name the resources, and the fields or the server that lacks them")
		case at == "*":
			return errors.New("name the paths")
		case !matches(at, "code"):
		case len(a.Resource) > 0 || at != "code" || strings.Contains(request, "*") || a.Want == nil || a.Have == nil:
			return errors.New("a code differs only in one named request, from one value to another")
		}
	}
	return nil
}

func (a *Allowed) whose() Patterns {
	if len(a.Resource) > 0 {
		return a.Resource
	}
	return a.Request
}

func (a *Allowed) pairs() [][2]string {
	var all [][2]string
	for _, request := range a.whose() {
		for _, at := range a.Path {
			all = append(all, [2]string{request, at})
		}
	}
	return all
}

// allows reports whether the entry has a difference, and records the pairs that do.
func (a *Allowed) allows(d Difference) bool {
	if a.Want != nil && fmt.Sprint(a.Want) != fmt.Sprint(d.Want) || a.Have != nil && fmt.Sprint(a.Have) != fmt.Sprint(d.Have) {
		return false
	}
	if a.Lacks == "kubernetes" && d.Want != nil || a.Lacks == "monopod" && d.Have != nil {
		return false
	}
	whose, at := d.Step, d.Path
	if len(a.Resource) > 0 {
		whose, at = d.Resource, inObject.ReplaceAllString(d.Path, "")
	}
	allowed := false
	for _, pair := range a.pairs() {
		if matches(pair[0], whose) && matches(pair[1], at) {
			a.used[pair], allowed = true, true
		}
	}
	return allowed
}

// Judge returns the differences that no entry allows, and the pairs of a request and a path that allowed none.
func Judge(differences []Difference, list []*Allowed) (wrong []Difference, unused [][2]string) {
	for _, d := range differences {
		allowed := false
		for _, a := range list {
			allowed = a.allows(d) || allowed
		}
		if !allowed {
			wrong = append(wrong, d)
		}
	}
	for _, a := range list {
		for _, pair := range a.pairs() {
			if !a.used[pair] {
				unused = append(unused, pair)
			}
		}
	}
	return wrong, unused
}

// Pairs returns how many pairs of a request and a path a list allows.
func Pairs(list []*Allowed) int {
	n := 0
	for _, a := range list {
		n += len(a.pairs())
	}
	return n
}

// inObject matches what precedes the path in an object: of an element of a list, a table or a watch.
var inObject = regexp.MustCompile(`^(\[\d+\]\.object\.)?((items|rows)\[[^]]*\]\.)?(object\.)?`)

// resourceOf returns the resource of a request, with its subresource; empty for other paths.
func resourceOf(do string) string {
	_, path, _ := strings.Cut(do, " ")
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return ""
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}

// matches reports whether a text is that of a pattern.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		_, text, ok = strings.Cut(text, part)
		if !ok {
			return false
		}
	}
	return strings.HasSuffix(text, parts[last])
}
