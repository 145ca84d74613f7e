package watcher

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"monopod/internal/model"
	"monopod/internal/printer"
	"monopod/manifests"
)

// Lines returns the lines of an error, one for each joined error. A line end in the name of a file, or in a message, is escaped: it could
// otherwise forge a message.
func Lines(err error) []string {
	if err == nil {
		return nil
	}
	return printer.ErrorLines(err)
}

// A hostile answer gives as many reasons as it has lines, and some as long as it is.
const (
	// MaxReasons is how many reasons a report has, maxReason how many bytes each.
	MaxReasons = 100
	maxReason  = 1000
	// maxLogged is how many reasons, and names of pods, a line of the log has.
	maxLogged = 10
)

// Bounded returns the first reasons, and how many there are besides.
func Bounded(reasons []string) []string {
	out := slices.Clone(first(reasons, MaxReasons))
	for i, r := range out {
		if len(r) > maxReason {
			out[i] = strings.ToValidUTF8(r[:maxReason], "") + "..."
		}
	}
	return out
}

// first returns the first words, and how many there are besides.
func first(words []string, most int) []string {
	if len(words) <= most {
		return words
	}
	return append(slices.Clone(words[:most]), fmt.Sprintf("and %d more", len(words)-most))
}

// Problems returns the problems of an error with their locations in documents, worded like the lines of Bounded.
func Problems(err error) []model.Problem {
	var all []model.Problem
	for _, e := range manifests.Errors(err) {
		if len(all) == MaxReasons {
			break
		}
		all = append(all, model.Problem{Text: Bounded(Lines(e))[0], Error: *e})
	}
	return all
}

// Keys returns the keys of pods.
func Keys(pods []*manifests.Pod) []string {
	names := make([]string, 0, len(pods))
	for _, p := range pods {
		names = append(names, p.Key().String())
	}
	return names
}

// ObjectNames returns the names of objects with their kinds.
func ObjectNames(objects []*manifests.Object) []string {
	var all []string
	for _, o := range objects {
		all = append(all, o.String())
	}
	return all
}

// WithContent returns r with the pods and objects of c, and with remarks on what is not supported. An input that has nothing
// else is ignored as a whole.
func WithContent(r model.Input, c *manifests.Content) model.Input {
	r.Pods = Keys(c.Pods)
	r.Objects = ObjectNames(c.Objects)
	r.Objects = append(r.Objects, ObjectNames(c.Workloads)...)
	remarks := c.Remarks()
	if r.State != model.InputAccepted || len(remarks) == 0 {
		return r
	}
	r.Errors = Bounded(slices.Concat(r.Errors, remarks))
	if len(r.Pods)+len(r.Objects) == 0 {
		r.State = model.InputIgnored
	}
	return r
}

// LogChanges writes one line per input that came into another state, or was refused for other reasons.
func LogChanges(log *slog.Logger, old, now []model.Input) {
	old, now = differing(old, now)
	before := make(map[string]model.Input, len(old))
	for _, r := range old {
		before[r.Input] = r
	}
	for _, r := range now {
		was, known := before[r.Input]
		delete(before, r.Input)
		if known && sameVerdict(was, r) {
			continue
		}
		emit := log.Warn
		if r.State == model.InputAccepted || r.State == model.InputIgnored {
			emit = log.Info
		}
		emit("input "+strings.ToLower(string(r.State)), "input", r.Input, "pods", first(r.Pods, maxLogged), "reasons", first(r.Errors, maxLogged))
	}
	for _, r := range old {
		if _, gone := before[r.Input]; gone {
			log.Info("input gone", "input", r.Input, "pods", first(r.Pods, maxLogged))
		}
	}
}

// sameVerdict reports whether two reports on one input differ in nothing that is logged.
func sameVerdict(a, b model.Input) bool {
	return a.Input == b.Input && a.State == b.State && slices.Equal(a.Errors, b.Errors)
}

// differing leaves out what two lists have in common at their beginnings and ends: with thousands of inputs hardly
// anything else remains.
func differing(a, b []model.Input) (restOfA, restOfB []model.Input) {
	for len(a) > 0 && len(b) > 0 && sameVerdict(a[0], b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && sameVerdict(a[len(a)-1], b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// SafeLoad is load with a panic turned into an error: one document that no one expected must not stop the others.
func SafeLoad(load Loader, input string, data []byte) (c *manifests.Content, err error) {
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("%s: this manifest crashes the reader (%v); please report it with the file", input, p)
		}
	}()
	return load(input, data)
}

// Loader decodes the bytes of an input, and returns an error with everything that is wrong. Besides an error it may return the objects that
// are not affected. An input of no bytes must be an error: a crash in the middle of a write leaves that behind. It is called from one
// goroutine per source.
type Loader func(input string, data []byte) (*manifests.Content, error)

// MaxInput is the largest file or answer that is read.
const MaxInput = 10 << 20

// KeepSince gives r the time at which its input came into its state.
func KeepSince(now time.Time, was, r model.Input) model.Input {
	r.Since = was.Since
	if was.State != r.State {
		r.Since = now
	}
	return r
}

// ImmutableEdits returns an error for each change of an object that is immutable.
func ImmutableEdits(old, now *manifests.Content) error {
	var errs []error
	for _, e := range manifests.ImmutableEdits(old.Objects, now.Objects) {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}
