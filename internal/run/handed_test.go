package run

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/runner/runtimetest"
)

// TestEachSourceAllowsWhatItsKeySays: what a source may do is podSecurity, unless it has a key of its own.
func TestEachSourceAllowsWhatItsKeySays(t *testing.T) {
	t.Parallel()
	privileged := func(name string) string {
		return strings.ReplaceAll(daemontest.PodYAML(name, runtimetest.ScriptServe), "command:", "securityContext: {privileged: true}, command:")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, privileged("remote")) }))
	defer srv.Close()
	for key, allowed := range map[string]string{"staticPodPathSecurity": "local", "staticPodURLSecurity": "remote"} {
		t.Run(key, func(t *testing.T) {
			d := newDaemon(t, "podSecurity: baseline", key+": privileged", "staticPodURL: "+srv.URL)
			d.Put("local.yaml", privileged("local"))
			d.Start()
			r := d.Shows(`violates PodSecurity "baseline:`, "get", "sources")
			if strings.Count(r.Stdout, "violates PodSecurity") != 1 {
				t.Errorf("sources:\n%s", r.Stdout)
			}
			if r := d.Shows("Running", "get", "pods"); !strings.Contains(r.Stdout, allowed) || strings.Count(r.Stdout, "\n") != 2 {
				t.Errorf("pods:\n%s", r.Stdout)
			}
		})
	}
}

// TestOnlySourcesWithPermissionHaveCriticalPods: pods of remote sources come before others only where the configuration allows it.
func TestOnlySourcesWithPermissionHaveCriticalPods(t *testing.T) {
	t.Parallel()
	critical := func(name string) string {
		return strings.ReplaceAll(daemontest.PodYAML(name, runtimetest.ScriptServe), "spec:", "spec:\n  priorityClassName: system-node-critical")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, critical(strings.Trim(r.URL.Path, "/")))
	}))
	defer srv.Close()
	for _, tt := range []struct {
		keys    []string
		refused int
		runs    []string
	}{
		{nil, 2, []string{"local"}},
		{[]string{"staticPodURLCriticalPods: true"}, 1, []string{"local", "http"}},
		{[]string{"CRITICAL"}, 1, []string{"local", "fleet"}},
	} {
		t.Run(strings.Join(tt.keys, " "), func(t *testing.T) {
			fleet := "sources: [{name: fleet, url: '" + srv.URL + "/fleet', period: 1s"
			if len(tt.keys) > 0 && tt.keys[0] == "CRITICAL" {
				fleet, tt.keys = fleet+", criticalPods: true", nil
			}
			d := newDaemon(t, append(tt.keys, "staticPodURL: "+srv.URL+"/http", fleet+"}]")...)
			d.Put("local.yaml", critical("local"))
			d.Start()
			r := d.Shows("pods of this source may not be critical, as with system-node-critical; remove it, or set criticalPods: true", "get", "sources")
			for strings.Count(r.Stdout, "spec.priorityClassName") < tt.refused {
				r = d.Shows("spec.priorityClassName", "get", "sources")
			}
			if n := strings.Count(r.Stdout, "spec.priorityClassName"); n != tt.refused {
				t.Errorf("sources:\n%s", r.Stdout)
			}
			for _, name := range tt.runs {
				d.Shows(name, "get", "pods")
			}
		})
	}
}
