// Package watchertest is test support: it runs a source of manifests, waits for what it reports, and has the smallest language of
// manifests.
//
// Only tests import it.
package watchertest

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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/watcher"
)

// LineLoader is the smallest language that has what matters here: "pod NAME IMAGE" per line, several pods per file,
// and every prefix of a file that ends with a line is valid too. "panic" panics. It counts its calls.
type LineLoader struct {
	Source string
	Calls  atomic.Int64
}

// Load is a watcher.Loader.
func (l *LineLoader) Load(file string, data []byte) (*manifests.Content, error) {
	l.Calls.Add(1)
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
			pods = append(pods, NewPod(words[1], words[2], manifests.Origin{Source: l.Source, File: file, Line: line}))
		default:
			return nil, &manifests.Error{File: file, Line: line, Msg: "not a pod: " + strings.TrimSpace(text)}
		}
	}
	return &manifests.Content{Pods: pods}, nil
}

// NewPod returns a pod of one container with the image.
func NewPod(name, image string, o manifests.Origin) *manifests.Pod {
	return &manifests.Pod{
		Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		},
		Origin: o,
	}
}

// Content prints the pods of a set as "name=image@file", in their order.
func Content(pods []*manifests.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, fmt.Sprintf("%s=%s@%s", p.Object.Name, p.Object.Spec.Containers[0].Image, filepath.Base(p.Origin.File)))
	}
	return strings.Join(all, " ")
}

func podNames(s watcher.Set) []string {
	var all []string
	for _, p := range s.Pods {
		all = append(all, p.Object.Name)
	}
	return all
}

// ReportOn returns the report of a set on one input, the zero value if it has none.
func ReportOn(s watcher.Set, input string) model.Input {
	for _, r := range s.Inputs {
		if r.Input == input {
			return r
		}
	}
	return model.Input{}
}

// StateOf returns the state of one input.
func StateOf(s watcher.Set, input string) model.InputState { return ReportOn(s, input).State }

// Runner runs a source and remembers every Set it sent.
type Runner struct {
	t      testing.TB
	Dir    string
	Loader *LineLoader
	Stop   func()

	mu   sync.Mutex
	sets []watcher.Set
	news chan struct{}
}

// StartSource runs a source until the test ends.
func StartSource(tb testing.TB, src watcher.Source) *Runner {
	tb.Helper()
	s := &Runner{t: tb, news: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(tb.Context())
	out, done := make(chan watcher.Set), make(chan struct{})
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
	s.Stop = sync.OnceFunc(func() { cancel(); <-done; <-collected })
	tb.Cleanup(s.Stop)
	return s
}

// Last returns the last set that the source sent; false if it has sent none.
func (s *Runner) Last() (watcher.Set, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sets) == 0 {
		return watcher.Set{}, false
	}
	return s.sets[len(s.sets)-1], true
}

// History returns all sets sent so far.
func (s *Runner) History() []watcher.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sets)
}

// Patience is how long a test waits for a source.
const Patience = time.Minute

// Until waits for a set that satisfies ok and returns it.
func (s *Runner) Until(what string, ok func(watcher.Set) bool) watcher.Set {
	s.t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	for {
		if set, sent := s.Last(); sent && ok(set) {
			return set
		}
		select {
		case <-s.news:
		case <-deadline.C:
			set, _ := s.Last()
			s.t.Fatalf("never saw %s; last: pods %q unread %v unknown %v reports %+v", what, Content(set.Pods), set.Unread, set.Unknown, set.Inputs)
		}
	}
}

// Pods waits until the set is exactly want, as printed by content.
func (s *Runner) Pods(want string) watcher.Set {
	s.t.Helper()
	return s.Until("pods "+want, func(set watcher.Set) bool { return !set.Unread && Content(set.Pods) == want })
}

// State waits until the input is in the state.
func (s *Runner) State(input string, want model.InputState) watcher.Set {
	s.t.Helper()
	return s.Until(fmt.Sprintf("%s %s", input, want), func(set watcher.Set) bool { return StateOf(set, input) == want })
}

// NeverWithout fails if any set from the first one on that holds the pod came to lack it.
func (s *Runner) NeverWithout(pod string) {
	s.t.Helper()
	seen := false
	for i, set := range s.History() {
		has := slices.Contains(podNames(set), pod)
		if seen && !has {
			s.t.Fatalf("set %d of %d lacks pod %s: %q %+v", i, len(s.History()), pod, Content(set.Pods), set.Inputs)
		}
		seen = seen || has
	}
	if !seen {
		s.t.Fatalf("no set ever had pod %s", pod)
	}
}

// Write writes a file.
func Write(tb testing.TB, path, data string) {
	tb.Helper()
	Must(tb, os.WriteFile(path, []byte(data), 0o644))
}

// Replace writes a file as tools should: a hidden file beside it, then rename.
func Replace(tb testing.TB, path, data string) {
	tb.Helper()
	tmp := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	Write(tb, tmp, data)
	Must(tb, os.Rename(tmp, path))
}

// Must fails the test if err is not nil.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// IsErrno reports whether err is want; a nil error is nil.
func IsErrno(err, want error) bool {
	if want == nil {
		return err == nil
	}
	return errors.Is(err, want)
}

// Hand does something to the directory or file at.
type Hand struct {
	T  *testing.T
	At string
}

// WaitFor polls a condition that comes with no set.
func (s *Runner) WaitFor(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("never saw %s", what)
		}
	}
}

// Images prints the pods of a set as "name=image".
func Images(set watcher.Set) string {
	var all []string
	for _, p := range set.Pods {
		all = append(all, p.Object.Name+"="+p.Object.Spec.Containers[0].Image)
	}
	return strings.Join(all, " ")
}

// Wants waits for a set with these pods, whose first input has this state.
func (s *Runner) Wants(pods string, state model.InputState) watcher.Set {
	s.t.Helper()
	return s.Until(pods+" "+string(state), func(set watcher.Set) bool {
		return Images(set) == pods && len(set.Inputs) == 1 && set.Inputs[0].State == state
	})
}

// Says waits for a report that contains these words.
func (s *Runner) Says(words string) watcher.Set {
	s.t.Helper()
	return s.Until("a report that says "+words, func(set watcher.Set) bool {
		return len(set.Inputs) == 1 && strings.Contains(strings.Join(set.Inputs[0].Errors, "\n"), words)
	})
}
