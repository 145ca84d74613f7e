package file

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

// modelFile is what a simple mind thinks of one manifest.
type modelFile struct {
	text string
	// broken is what the refusal must say; empty when the text is good.
	broken string
	// lastGood is the text whose pods count; known is set if there was one.
	lastGood string
	known    bool
}

// directory is a directory in the world of that simple mind, and the hand that changes the real one.
type directory struct {
	t     *testing.T
	rng   *rand.Rand
	dir   string
	far   string
	files map[string]*modelFile
	n     int
	trace []string
}

func (m *directory) path(name string) string { return filepath.Join(m.dir, name) }

func (m *directory) pick(of []string) string { return of[m.rng.IntN(len(of))] }

var modelNames = []string{"a.yaml", "b.yml", "c.json", "d.yaml", "e.yaml"}

// text creates new content: a pod of its own and one to three of six, or nonsense.
func (m *directory) text() (text, broken string) {
	m.n++
	if m.rng.IntN(4) == 0 {
		return fmt.Sprintf("pod p0 v%d\nnonsense%d\n", m.n, m.n), fmt.Sprintf("nonsense%d", m.n)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pod only%d v%d\n", m.n, m.n) // never in conflict: shows that this text was seen
	for _, i := range m.rng.Perm(6)[:1+m.rng.IntN(3)] {
		fmt.Fprintf(&b, "pod p%d v%d\n", i, m.n)
	}
	return b.String(), ""
}

// set notes new content of a file.
func (m *directory) set(name, text, broken string) {
	f := m.files[name]
	if f == nil {
		f = &modelFile{}
		m.files[name] = f
	}
	f.text, f.broken = text, broken
	if broken == "" {
		f.lastGood, f.known = text, true
	}
}

func (m *directory) step() {
	name := m.pick(modelNames)
	text, broken := m.text()
	old := m.files[name]
	note := func(what string) { m.trace = append(m.trace, what+" "+name) }
	switch op := m.rng.IntN(10); {
	case op < 2:
		note("write")
		watchertest.Write(m.t, m.path(name), text)
		m.set(name, text, broken)
	case op < 4:
		note("replace")
		watchertest.Replace(m.t, m.path(name), text)
		m.set(name, text, broken)
	case op < 5 && old != nil:
		note("truncate")
		watchertest.Must(m.t, os.Truncate(m.path(name), 0))
		m.set(name, "", "empty")
	case op < 6 && old != nil:
		note("remove")
		watchertest.Must(m.t, os.Remove(m.path(name)))
		delete(m.files, name)
	case op < 7 && old != nil:
		m.rename(name, m.pick(modelNames))
	case op < 8:
		note("link")
		target := filepath.Join(m.far, fmt.Sprintf("t%d", m.n))
		watchertest.Write(m.t, target, text)
		watchertest.Must(m.t, os.Symlink(target, m.path(".link")))
		watchertest.Must(m.t, os.Rename(m.path(".link"), m.path(name)))
		m.set(name, text, broken)
	case op < 9:
		note("droppings beside")
		watchertest.Write(m.t, m.path(name+"~"), text)
		watchertest.Write(m.t, m.path("."+name+".swp"), text)
	default:
		note("away and back for")
		watchertest.Must(m.t, os.Rename(m.dir, m.dir+".away"))
		watchertest.Must(m.t, os.Rename(m.dir+".away", m.dir))
	}
}

// rename moves a file. A new name inherits the last good content, an existing one keeps its own.
func (m *directory) rename(from, to string) {
	if from == to {
		return
	}
	m.trace = append(m.trace, "rename "+from+" to "+to)
	watchertest.Must(m.t, os.Rename(m.path(from), m.path(to)))
	f, old := m.files[from], m.files[to]
	delete(m.files, from)
	if old != nil {
		m.set(to, f.text, f.broken)
		return
	}
	m.files[to] = f
}

// pods are those of the last good contents, the first file by name winning.
func (m *directory) pods() string {
	var all []string
	taken := map[string]bool{}
	for _, name := range modelNames {
		f := m.files[name]
		if f == nil || !f.known {
			continue
		}
		for line := range strings.Lines(f.lastGood) {
			if w := strings.Fields(line); !taken[w[1]] {
				taken[w[1]] = true
				all = append(all, fmt.Sprintf("%s=%s@%s", w[1], w[2], name))
			}
		}
	}
	return strings.Join(all, " ")
}

// agrees reports whether a set is what the model expects.
func (m *directory) agrees(set watcher.Set) bool {
	if set.Unread || watchertest.Content(set.Pods) != m.pods() {
		return false
	}
	for _, name := range modelNames {
		r, f := watchertest.ReportOn(set, m.path(name)), m.files[name]
		switch {
		case f == nil:
			if r.State != "" {
				return false
			}
		case f.broken != "":
			if r.State != model.InputRefused || !strings.Contains(strings.Join(r.Errors, " "), f.broken) {
				return false
			}
		case r.State != model.InputAccepted && r.State != model.InputConflict:
			return false
		}
		if f != nil && f.known == slices.Contains(set.Unknown, m.path(name)) {
			return false
		}
	}
	return watchertest.StateOf(set, m.dir) == model.InputAccepted
}

func newModel(t *testing.T, seed uint64) (*directory, *watchertest.Runner) {
	t.Helper()
	root := t.TempDir()
	m := &directory{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), files: map[string]*modelFile{},
		dir: filepath.Join(root, "manifests"), far: filepath.Join(root, "far"),
	}
	watchertest.Must(t, os.Mkdir(m.dir, 0o755))
	watchertest.Must(t, os.Mkdir(m.far, 0o755))
	loader := &watchertest.LineLoader{Source: "file"}
	src := New(Config{Path: m.dir, Load: loader.Load, CheckFrequency: time.Hour})
	src.graces = hasty()
	s := watchertest.StartSource(t, src)
	s.Until("an empty set", m.agrees)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d: %s\nwant %s", seed, strings.Join(m.trace, "; "), m.pods())
		}
	})
	return m, s
}

func TestTheFileSourceAgreesWithASimpleModelAfterEachStep(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			m, s := newModel(t, seed)
			for i := range 80 {
				m.step()
				s.Until(fmt.Sprintf("step %d", i), m.agrees)
			}
		})
	}
}

// Bursts leave open which of several contents of a file was seen, but not what comes of it at the end.
func TestTheFileSourceAgreesWithASimpleModelAfterABurst(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			m, s := newModel(t, 100+seed)
			for round := range 8 {
				for range 40 {
					m.step()
				}
				for _, name := range modelNames {
					if f := m.files[name]; f != nil && f.broken != "" {
						m.n++
						text := fmt.Sprintf("pod p%d v%d\n", m.n%6, m.n)
						watchertest.Replace(t, m.path(name), text)
						m.set(name, text, "")
					}
				}
				s.Until(fmt.Sprintf("round %d", round), m.agrees)
			}
		})
	}
}
