// Package health serves the version and health endpoints of the Kubernetes API: /version, /healthz, /livez and /readyz.
//
// It must not know what is checked, nor which users may read it.
//
// Goroutines: none.
package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

// Level is the version of Kubernetes whose API is served: that of k8s.io/api in go.mod.
const Level = "1.37.2"

// Version serves /version. kubectl warns if its minor version differs by more than one. Build is the version of monopod.
func Version(w http.ResponseWriter, build string) {
	parts := strings.Split(Level, ".")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(version.Info{
		Major: parts[0], Minor: parts[1], GitVersion: "v" + Level + "+monopod", GitCommit: build,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}) // an error means that the client is gone
}

// Check is a named health check.
type Check struct {
	Name string
	// Run returns an error if the check fails; a nil Run always succeeds.
	Run func(context.Context) error
}

// Serve serves /PROBE and /PROBE/CHECK like kube-apiserver: ok, or 500 with the list of checks. ?verbose always lists the checks,
// ?exclude=CHECK skips one. It returns false for an unknown check.
func Serve(w http.ResponseWriter, r *http.Request, probe, one string, checks []Check) bool {
	checks = slices.Clone(checks)
	if one = strings.TrimSuffix(one, "/"); one != "" {
		checks = slices.DeleteFunc(checks, func(c Check) bool { return c.Name != one })
		if len(checks) == 0 {
			return false
		}
	}
	q := r.URL.Query()
	var text strings.Builder
	failed := false
	for _, c := range checks {
		if slices.Contains(q["exclude"], c.Name) {
			continue
		}
		if c.Run != nil {
			if err := c.Run(r.Context()); err != nil {
				failed = true
				fmt.Fprintf(&text, "[-]%s failed: %v\n", c.Name, err)
				continue
			}
		}
		fmt.Fprintf(&text, "[+]%s ok\n", c.Name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", text.String(), probe)
	case q.Has("verbose"):
		fmt.Fprintf(w, "%s%s check passed\n", text.String(), probe)
	default:
		fmt.Fprint(w, "ok")
	}
	return true
}
