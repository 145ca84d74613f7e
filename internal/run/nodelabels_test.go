package run

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/atomicfile/damagetest"
	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/testfiles"
	"monopod/runner/runtimetest"
)

// patchNode changes metadata of the Node through the socket of a daemon.
func patchNode(t *testing.T, d *clitest.Daemon, metadata string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.Path("run", "monopod.sock"))
	}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://socket/api/v1/nodes/test-node", strings.NewReader(`{"metadata":`+metadata+`}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/merge-patch+json")
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", metadata, res.StatusCode, text, err)
	}
}

// TestNewPodsWaitForLabelsThatADamagedFileHasLost: not seeing labels is not the same as having none. Pods that exist go on.
func TestNewPodsWaitForLabelsThatADamagedFileHasLost(t *testing.T) {
	t.Parallel()
	for name, spoil := range damagetest.Ways() {
		for _, settings := range [][]string{nil, {"nodeLabels: {site: lab}"}} {
			t.Run(fmt.Sprint(name, len(settings)), func(t *testing.T) {
				t.Parallel()
				d := newDaemon(t, settings...)
				put := func(name, selector string) {
					d.Put(name+".yaml", strings.Replace(daemontest.PodYAML(name, runtimetest.ScriptServe), "spec:\n", "spec:\n  nodeSelector: {"+selector+"}\n", 1))
				}
				d.Start()
				patchNode(t, d, `{"labels":{"role":"primary"}}`)
				put("old", "role: primary")
				d.Phase("old", "Running")
				d.End()
				if err := spoil(d.Path("root", "node.json")); err != nil {
					t.Fatal(err)
				}
				put("new", "role: primary")
				put("other", "role: replica")
				put("plain", "kubernetes.io/os: linux")
				waits := func(pods ...string) {
					t.Helper()
					d.Phase("old", "Running")
					d.Phase("plain", "Running")
					for _, pod := range pods {
						d.PodIs(pod, "waiting", func(p *corev1.Pod) error {
							if s := p.Status; s.Phase != corev1.PodPending || s.Reason != "NodeAffinity" {
								return fmt.Errorf("%s %s", s.Phase, s.Reason)
							}
							return nil
						})
					}
				}
				d.Start()
				waits("new", "other")
				if r := d.Cmd("why", "new"); !strings.Contains(r.Stdout, "selects by role") || !strings.Contains(r.Stdout, "in one request") {
					t.Errorf("why: %s", r.Stdout)
				}
				if log := d.Log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "set all labels of the Node again") {
					t.Errorf("the log does not tell: %s", log)
				}
				d.End()
				d.Start() // the damaged file has been set aside by now
				patchNode(t, d, `{"annotations":{"note":"a"}}`)
				d.End()
				d.Start()
				waits("new", "other")
				patchNode(t, d, `{"labels":{"role":"primary"}}`)
				d.Phase("new", "Running")
				waits("other")
				if _, err := os.Lstat(d.Path("root", "node.json.damaged")); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestAMachineThatNeverHadLabelsHasLostNone: it compares nothing, as ever.
func TestAMachineThatNeverHadLabelsHasLostNone(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	testfiles.Write(t, d.Path("manifests", "any.yaml"), strings.Replace(daemontest.PodYAML("any", runtimetest.ScriptServe), "spec:\n", "spec:\n  nodeSelector: {a: b}\n", 1))
	d.Start()
	d.Phase("any", "Running")
}
