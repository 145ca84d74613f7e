package run

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/testfiles"
	"monopod/runner/runtimetest"
)

// TestALimitOfNamespacesStopsNothing: pods that run when namespaces is set keep running, whether their source is a directory or a URL, and are told which
// key of the configuration refuses them.
func TestALimitOfNamespacesStopsNothing(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, daemontest.PodYAML("far", runtimetest.ScriptServe))
	}))
	t.Cleanup(server.Close)
	d := newDaemon(t, "sources: [{name: fleet, url: '"+server.URL+"'}]")
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	containers := func() string {
		text := ""
		for _, name := range []string{"web", "far"} {
			d.Ready(name)
			text += d.Pod(name).Status.ContainerStatuses[0].ContainerID + " "
		}
		return text
	}
	before := containers()
	d.End()
	settings, err := os.ReadFile(d.Path("config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.Path("config.yaml"), string(settings)+"namespaces: {file: [shop], fleet: [shop, edge]}\n")
	d.Start()
	for source, advice := range map[string]string{"file": "[shop, default]", "fleet": "[shop, edge, default]"} {
		r := d.Shows(fmt.Sprintf("metadata.namespace: source %s may not define objects in namespace default", source), "get", "sources")
		if want := fmt.Sprintf("or allow it by namespaces: {%s: %s} in the configuration", source, advice); !strings.Contains(r.Stdout, want) {
			t.Errorf("%s\nlacks %s", r.Stdout, want)
		}
	}
	d.Put("web.yaml", strings.ReplaceAll(daemontest.PodYAML("web", runtimetest.ScriptServe), "example.com/app:1", "example.com/app:2"))
	d.Put("new.yaml", daemontest.PodYAML("new", runtimetest.ScriptServe))
	d.Shows("pod default/new: metadata.namespace", "get", "sources")
	if after := containers(); after != before {
		t.Errorf("%s, were %s", after, before)
	}
}
