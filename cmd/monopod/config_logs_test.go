package main

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/runner/ctrd/logs"
)

func TestLogLimits(t *testing.T) {
	dir := t.TempDir()
	tenth := diskSize(dir) / 10
	for _, c := range []struct {
		size, total string
		want        logs.Limits
	}{
		{"10Mi", "", logs.Limits{MaxSize: 10 << 20, MaxFiles: 5, Total: max(64<<20, tenth)}},
		{"40k", "1Gi", logs.Limits{MaxSize: 40000, MaxFiles: 5, Total: 1 << 30}},
		{"-1", "-1", logs.Limits{MaxSize: -1, MaxFiles: 5, Total: -1}},
	} {
		cfg := &Config{ContainerLogMaxSize: c.size, ContainerLogMaxFiles: 5, PodLogsMaxSize: c.total, PodLogsDir: filepath.Join(dir, "not", "there")}
		if got := logLimits(cfg); got != c.want {
			t.Errorf("%q, %q: %+v, want %+v", c.size, c.total, got, c.want)
		}
	}
	if tenth <= 0 {
		t.Errorf("the file system of %s has %d bytes", dir, tenth)
	}
}

func TestWhetherOutputIsDroppedFollowsFromTheEvents(t *testing.T) {
	ev := func(reason string, second int) corev1.Event {
		return corev1.Event{Reason: reason, Message: reason, LastTimestamp: metav1.Unix(int64(second), 0)}
	}
	for name, c := range map[string]struct {
		all  []corev1.Event
		want string
	}{
		"nothing":  {},
		"others":   {[]corev1.Event{ev("Pulled", 1)}, ""},
		"dropped":  {[]corev1.Event{ev("LogsResumed", 1), ev("LogsDropped", 2), ev("Started", 3)}, "LogsDropped"},
		"over":     {[]corev1.Event{ev("LogsDropped", 2), ev("LogsResumed", 2)}, ""},
		"repeated": {[]corev1.Event{ev("LogsDropped", 5), ev("LogsResumed", 2)}, "LogsDropped"},
	} {
		if got := unsettled(c.all, "LogsDropped", "LogsResumed"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
