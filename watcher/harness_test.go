package watcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lineLoader is the smallest language that has what matters here: "pod NAME IMAGE" per line, several pods per file,
// and every prefix of a file that ends with a line is valid too. "panic" panics. It counts its calls.
type lineLoader struct {
	source string
	calls  atomic.Int64
}

func (l *lineLoader) load(file string, data []byte) (*manifests.Content, error) {
	l.calls.Add(1)
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil, &manifests.Error{File: file, Msg: "the file is empty"}
	}
	var pods []*manifests.Pod
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		words := strings.Fields(text)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "panic":
			panic("the loader met " + file)
		case words[0] == "pod" && len(words) == 3 && strings.HasSuffix(text, "\n"):
			pods = append(pods, newPod(words[1], words[2], manifests.Origin{Source: l.source, File: file, Line: line}))
		default:
			return nil, &manifests.Error{File: file, Line: line, Msg: "not a pod: " + strings.TrimSpace(text)}
		}
	}
	return &manifests.Content{Pods: pods}, nil
}

func newPod(name, image string, o manifests.Origin) *manifests.Pod {
	return &manifests.Pod{
		Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		},
		Origin: o,
	}
}

// content prints the pods of a set as "name=image@file", in their order.
func content(pods []*manifests.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, fmt.Sprintf("%s=%s@%s", p.Object.Name, p.Object.Spec.Containers[0].Image, filepath.Base(p.Origin.File)))
	}
	return strings.Join(all, " ")
}

func podNames(s Set) []string {
	var all []string
	for _, p := range s.Pods {
		all = append(all, p.Object.Name)
	}
	return all
}

func reportOn(s Set, input string) Report {
	for _, r := range s.Reports {
		if r.Input == input {
			return r
		}
	}
	return Report{}
}

func stateOf(s Set, input string) ReportState { return reportOn(s, input).State }

// stand runs a source and remembers every Set it sent.
type stand struct {
	t      testing.TB
	dir    string
	loader *lineLoader
	stop   func()

	mu   sync.Mutex
	sets []Set
	news chan struct{}
}

// unhurried are graces within which a test does what it does, however slow the machine is; with hasty ones, what is gone goes.
func unhurried() graces {
	return graces{loss: time.Hour, longestLoss: time.Hour, aside: time.Hour, replaced: time.Hour, shrink: time.Hour}
}

func hasty() graces {
	return graces{loss: time.Millisecond, longestLoss: 5 * time.Millisecond, aside: time.Millisecond, replaced: time.Millisecond, shrink: 2 * time.Millisecond}
}

// standOn starts a FileSource on path, with which nothing goes that may come again.
func standOn(tb testing.TB, path string) *stand {
	tb.Helper()
	return standWith(tb, FileConfig{Path: path}, unhurried())
}

func standWith(tb testing.TB, cfg FileConfig, g graces) *stand {
	tb.Helper()
	loader := &lineLoader{source: "file"}
	if cfg.Load == nil {
		cfg.Load = loader.load
	}
	if cfg.CheckFrequency == 0 {
		cfg.CheckFrequency = time.Hour // what is seen is seen by events
	}
	src := NewFileSource(cfg)
	src.graces = g
	s := startSource(tb, src)
	s.dir, s.loader = cfg.Path, loader
	return s
}

func startSource(tb testing.TB, src Source) *stand {
	tb.Helper()
	s := &stand{t: tb, news: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(tb.Context())
	out, done := make(chan Set), make(chan struct{})
	go func() {
		defer close(done)
		if err := src.Run(ctx, out); err != nil {
			tb.Errorf("source %s: %v", src.Name(), err)
		}
	}()
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for {
			select {
			case set := <-out:
				s.mu.Lock()
				s.sets = append(s.sets, set)
				s.mu.Unlock()
				select {
				case s.news <- struct{}{}:
				default:
				}
			case <-done:
				return
			}
		}
	}()
	s.stop = sync.OnceFunc(func() { cancel(); <-done; <-collected })
	tb.Cleanup(s.stop)
	return s
}

func (s *stand) last() (Set, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sets) == 0 {
		return Set{}, false
	}
	return s.sets[len(s.sets)-1], true
}

// history returns all sets sent so far.
func (s *stand) history() []Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sets)
}

const patience = time.Minute

// until waits for a set that satisfies ok and returns it.
func (s *stand) until(what string, ok func(Set) bool) Set {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		if set, sent := s.last(); sent && ok(set) {
			return set
		}
		select {
		case <-s.news:
		case <-deadline.C:
			set, _ := s.last()
			s.t.Fatalf("never saw %s; last: pods %q unread %v unknown %v reports %+v", what, content(set.Pods), set.Unread, set.Unknown, set.Reports)
		}
	}
}

// pods waits until the set is exactly want, as printed by content.
func (s *stand) pods(want string) Set {
	s.t.Helper()
	return s.until("pods "+want, func(set Set) bool { return !set.Unread && content(set.Pods) == want })
}

// state waits until the input is in the state.
func (s *stand) state(input string, want ReportState) Set {
	s.t.Helper()
	return s.until(fmt.Sprintf("%s %s", input, want), func(set Set) bool { return stateOf(set, input) == want })
}

// neverWithout fails if any set from the first one on that holds the pod came to lack it.
func (s *stand) neverWithout(pod string) {
	s.t.Helper()
	seen := false
	for i, set := range s.history() {
		has := slices.Contains(podNames(set), pod)
		if seen && !has {
			s.t.Fatalf("set %d of %d lacks pod %s: %q %+v", i, len(s.history()), pod, content(set.Pods), set.Reports)
		}
		seen = seen || has
	}
	if !seen {
		s.t.Fatalf("no set ever had pod %s", pod)
	}
}

func write(tb testing.TB, path, data string) {
	tb.Helper()
	must(tb, os.WriteFile(path, []byte(data), 0o644))
}

// replace writes a file as tools should: a hidden file beside it, then rename.
func replace(tb testing.TB, path, data string) {
	tb.Helper()
	tmp := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	write(tb, tmp, data)
	must(tb, os.Rename(tmp, path))
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// isErrno says whether err is want; no error is nil.
func isErrno(err, want error) bool {
	if want == nil {
		return err == nil
	}
	return errors.Is(err, want)
}

// hand does something to the directory or file at.
type hand struct {
	t  *testing.T
	at string
}
