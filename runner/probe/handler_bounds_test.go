package probe

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The size of a command is checked in advance: one that is too large fails each attempt with the reason.
func TestOversizedCommandIsRejected(t *testing.T) {
	c := &corev1.Container{Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 70_000)}}}
	for name, command := range map[string][]string{
		"one word":   {"sh", strings.Repeat("$(A)", 1<<20)},
		"many words": strings.Split(strings.Repeat("$(A) ", 100_000), " "),
	} {
		h := newHandler(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}, Target{Container: c})
		if o := h.ask(context.Background(), 0); o.Result != Errored || !strings.Contains(o.Output, "exec.command[") {
			t.Errorf("%s: %+.300v", name, o)
		}
	}
}
