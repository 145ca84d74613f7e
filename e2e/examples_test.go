//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testimages"
)

// exampleImage is the image of the examples.
const exampleImage = "docker.io/library/busybox:1.37"

// logs waits until the log of a container contains a text.
func (in *instance) logs(want string, args ...string) {
	in.t.Helper()
	in.eventually(strings.Join(args, " ")+" prints "+want, func() error {
		out, err := in.run(append([]string{"logs"}, args...)...)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
}

// page waits until a pod serves a text.
func (in *instance) page(p corev1.Pod, want string) {
	in.t.Helper()
	in.eventually(p.Name+" serves "+want, func() error {
		c := http.Client{Timeout: 2 * time.Second}
		r, err := c.Get("http://" + p.Status.PodIP + ":8080/")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err == nil && !strings.Contains(string(b), want) {
			err = fmt.Errorf("page is %q", b)
		}
		return err
	})
}

// TestEachExampleRuns runs each example unchanged and checks what its comment claims. Those in examples/hello are run by `make run`; those
// in examples/volumes need databases and disks.
func TestEachExampleRuns(t *testing.T) {
	in := newInstance(t)
	testimages.Archive(t, filepath.Join(in.dir, "images", "examples.tar"), exampleImage)
	in.start()
	started := time.Now()
	checks := map[string]func(){
		"configuration": func() {
			in.ready("shop")
			in.logs("shop at level info: currency = EUR\n", "shop")
		},
		"daemonset": func() {
			in.ready("node-watch-0")
			in.logs("e2e: ", "node-watch-0")
		},
		"deployment": func() {
			in.page(in.ready("web-0"), "It works")
			in.page(in.ready("web-1"), "It works")
			in.asks("ClusterFirst", "default", "wget -qO- http://web:8080/ && echo", "<h1>It works</h1>")
		},
		"job": func() {
			for i := range 3 {
				name := fmt.Sprintf("pieces-%d", i)
				in.pod(name, "has succeeded", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
				in.logs(fmt.Sprintf("piece %d is done\n", i), name)
			}
		},
		"restricted": func() { in.page(in.ready("restricted"), "uid=10001 gid=10001 groups=10001") },
		"runtimeclass": func() {
			in.pod("small", "runs, or waits for crun, or for a machine that crun likes", func(p corev1.Pod) bool {
				if isReady(p) {
					return true
				}
				if len(p.Status.ContainerStatuses) != 1 {
					return false
				}
				c := p.Status.ContainerStatuses[0]
				if _, err := exec.LookPath("crun"); err != nil {
					return c.State.Waiting != nil && c.State.Waiting.Reason == "CreatePodSandboxError"
				}
				last := c.LastTerminationState.Terminated
				return last != nil && last.Reason == "StartError" && strings.Contains(last.Message, "cgroups in hybrid mode")
			})
		},
		"sidecar": func() {
			in.page(in.ready("sidecar"), "prepared")
			in.logs("served from now on\n", "sidecar", "-c", "follow-log")
		},
		"statefulset": func() {
			in.page(in.ready("ledger-0"), "ledger-0 started")
			in.page(in.ready("ledger-1"), "ledger-1 started")
			in.asks("ClusterFirst", "default", "wget -qO- http://ledger-1.ledger:8080/", "ledger-1 started")
			in.drop("statefulset")
			in.gone("ledger-1")
			in.copyFile("../examples/statefulset.yaml", filepath.Join(in.manifests, "statefulset.yaml"))
			in.page(in.ready("ledger-0"), "ledger-0 started\nledger-0 started\n")
		},
		"cronjob": func() {
			in.eventuallyUntil(started.Add(2*patience), "a run has succeeded", func() error {
				all, err := in.pods()
				for name, p := range all {
					if strings.HasPrefix(name, "minutely-") && p.Status.Phase == corev1.PodSucceeded {
						return nil
					}
				}
				return errors.Join(fmt.Errorf("none of %d pods", len(all)), err)
			})
		},
	}
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) != len(checks) {
		t.Errorf("%d examples, %d checks: %v", len(files), len(checks), err)
	}
	for _, f := range files {
		in.copyFile(f, filepath.Join(in.manifests, filepath.Base(f)))
	}
	last := "cronjob"
	for name, check := range checks {
		if name != last {
			check()
		}
	}
	checks[last]()
	in.drop("cronjob")
}
