package watcher

import (
	"fmt"
	"log/slog"
	"strings"

	"monopod/manifests"
)

// lines returns the lines of an error; joined errors have one line each.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	var all []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

func keys(pods []*manifests.Pod) []string {
	names := make([]string, 0, len(pods))
	for _, p := range pods {
		names = append(names, p.Key().String())
	}
	return names
}

// logChanges writes one line per input that came into another state, or was refused for other reasons.
func logChanges(log *slog.Logger, old, now []Report) {
	before := make(map[string]Report, len(old))
	for _, r := range old {
		before[r.Input] = r
	}
	for _, r := range now {
		was, known := before[r.Input]
		delete(before, r.Input)
		if known && was.State == r.State && strings.Join(was.Errors, "\n") == strings.Join(r.Errors, "\n") {
			continue
		}
		emit := log.Warn
		if r.State == Accepted || r.State == Ignored {
			emit = log.Info
		}
		emit("input "+strings.ToLower(string(r.State)), "input", r.Input, "pods", r.Pods, "reasons", r.Errors)
	}
	for _, r := range old {
		if _, gone := before[r.Input]; gone {
			log.Info("input gone", "input", r.Input, "pods", r.Pods)
		}
	}
}

// safeLoad is load with a panic turned into an error: one document that no one expected must not stop the others.
func safeLoad(load Loader, input string, data []byte) (pods []*manifests.Pod, err error) {
	defer func() {
		if p := recover(); p != nil {
			pods, err = nil, fmt.Errorf("%s: this manifest crashes the reader (%v); please report it with the file", input, p)
		}
	}()
	return load(input, data)
}

// Loader turns the content of an input into pods: all of them, or an error that says everything that is wrong. An
// input of no bytes must be an error: that is what a crash in the middle of a write leaves behind. It is called
// from one goroutine per source.
type Loader func(input string, data []byte) ([]*manifests.Pod, error)

// MaxInput is the largest file or answer that is read.
const MaxInput = 10 << 20
