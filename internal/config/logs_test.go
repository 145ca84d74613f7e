package config

import (
	"path/filepath"
	"testing"

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
		if got := LogLimits(cfg); got != c.want {
			t.Errorf("%q, %q: %+v, want %+v", c.size, c.total, got, c.want)
		}
	}
	if tenth <= 0 {
		t.Errorf("the file system of %s has %d bytes", dir, tenth)
	}
}
