package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/watcher/watchertest"
)

func TestGracesAreConfirmedByALaterListing(t *testing.T) {
	s := New(Config{Path: "/m"})
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	add := func(path string) { s.inputs[path] = &input{path: path, known: true} }
	add("/m/a.yaml")
	add("/m/b.yaml")
	empty := listing{location: location{real: "/m"}}
	s.markMissing(at(0), listing{location: empty.location, files: []candidate{{path: "/m/b.yaml"}}})
	s.forget(at(4))
	s.markMissing(at(4), empty) // b is lost too, a waits with it
	s.forget(at(8))
	if len(s.inputs) != 2 || !s.due().Equal(at(9)) {
		t.Fatalf("inputs %v, due %v", s.inputs, s.due())
	}
	s.forget(at(9))
	if len(s.inputs) != 0 || !s.due().IsZero() {
		t.Fatalf("inputs %v, due %v", s.inputs, s.due())
	}
	t.Run("and losses that never end are believed in the end", func(t *testing.T) {
		add("/m/first.yaml")
		for ms := 0; ms < 600; ms += 4 {
			add(fmt.Sprintf("/m/%d.yaml", ms))
			s.markMissing(at(ms), listing{location: empty.location, files: s.others("/m/first.yaml", ms)})
			s.forget(at(ms))
			if _, there := s.inputs["/m/first.yaml"]; there != (ms < 505) {
				t.Fatalf("after %d ms the first loss is there: %v", ms, there)
			}
		}
	})
}

// others lists every input as present, except one and the one that is lost at ms.
func (s *Source) others(lost string, ms int) []candidate {
	var all []candidate
	for path, in := range s.inputs {
		if path != lost && path != fmt.Sprintf("/m/%d.yaml", ms) && !in.gone() {
			all = append(all, candidate{path: path})
		}
	}
	return all
}

func TestABrokenFileThatIsRenamedKeepsItsLastGoodContent(t *testing.T) {
	dir := t.TempDir()
	x, w := filepath.Join(dir, "x.yaml"), filepath.Join(dir, "w.yaml")
	watchertest.Write(t, x, "pod x v1\n")
	s := standOn(t, dir)
	s.Pods("x=v1@x.yaml")
	watchertest.Write(t, x, "broken")
	s.State(x, model.InputRefused)
	watchertest.Must(t, os.Rename(x, w))
	s.Pods("x=v1@w.yaml")
	set := s.State(w, model.InputRefused)
	if !strings.Contains(set.Inputs[1].Errors[0], "w.yaml") {
		t.Errorf("the reason names the old file: %v", set.Inputs[1].Errors)
	}
	s.NeverWithout("x")
}
