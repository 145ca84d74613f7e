package fields

import (
	"embed"
	"fmt"
	"net/http"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed rows/*.yaml
var files embed.FS

// forever is the replacement of FOREVER.
const forever = "trap 'exit 0' TERM; sleep 3600 & wait"

// All returns all rows. Slow rows come first, so that the test does not end with them.
func All() []Row {
	var all []Row
	for _, name := range []string{"storage", "container", "probe", "hook", "pod", "volume", "runtime", "claim"} {
		text, err := files.ReadFile("rows/" + name + ".yaml")
		if err == nil {
			var rows []Row
			rows, err = parseRows(text)
			all = append(all, rows...)
		}
		if err != nil {
			panic(fmt.Sprintf("rows/%s.yaml: %v", name, err)) // a file of this package
		}
	}
	return all
}

// parseRows reads the rows of a file.
func parseRows(text []byte) ([]Row, error) {
	var file struct {
		Rows []Row `json:"rows"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	var all []Row
	for _, r := range file.Rows {
		each := r.Each
		if r.Each = nil; len(each) == 0 {
			each = []Words{{}}
		}
		for _, w := range each {
			one, err := r.replaced(w)
			if err != nil {
				return nil, fmt.Errorf("row %s: %w", r.Name, err)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// replaced returns a copy of the row with words replaced in all its texts, and paths in full.
func (r Row) replaced(w Words) (Row, error) {
	text, err := yaml.Marshal(r)
	if err != nil {
		return Row{}, err
	}
	if r, err = parse[Row](w.in(string(text))); err != nil {
		return Row{}, err
	}
	r.Script = Words{"FOREVER": forever}.in(r.Script)
	r.Fields, r.Refused = r.paths(r.FieldPaths), r.paths(r.RefusedPaths)
	r.Otherwise, r.Cut = inFull(r.At, r.Otherwise), inFull(r.At, r.Cut)
	for _, list := range []Conditions{r.Wait, r.Once, r.Holds, r.Fails} {
		for _, c := range list {
			if err := c.check(); err != nil {
				return Row{}, err
			}
		}
	}
	return r, nil
}

func (r *Row) paths(names string) []string {
	var all []string
	for n := range strings.FieldsSeq(names) {
		all = append(all, r.At+n)
	}
	return all
}

func inFull[V any](prefix string, m map[string]V) map[string]V {
	full := map[string]V{}
	for k, v := range m {
		full[prefix+k] = v
	}
	return full
}

// Answer returns the status code of the Server of PORT for the n-th request, from 1. It may wait.
func (r *Row) Answer(n int, req *Request) int {
	if len(r.Answers) == 0 {
		return http.StatusOK
	}
	switch a := r.Answers[min(n, len(r.Answers))-1].(type) {
	case float64:
		return int(a)
	default: // hang
		<-req.GaveUp
		return http.StatusOK
	}
}

// Check decides whether the fields of the row have an effect.
func (r *Row) Check(s *Seen) Verdict {
	holds, fails := r.Holds, r.Fails
	if len(holds) == 0 {
		holds, fails = Conditions{"phase Succeeded"}, Conditions{"phase Failed"}
	}
	switch {
	case len(r.Once) > 0 && !r.Once.Met(s):
		return Undecided
	case holds.Met(s):
		return Holds
	case len(r.Once) > 0, len(fails) > 0 && fails.Met(s):
		return Fails
	}
	return Undecided
}

// When reports whether the pod is ready to be edited or removed.
func (r *Row) When(s *Seen) bool {
	if len(r.Wait) > 0 {
		return r.Wait.Met(s)
	}
	return s.Ready()
}
