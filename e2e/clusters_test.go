//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"monopod/e2e/testimages"
	"monopod/fixture"
	"monopod/node/apiserver/apitest"
)

// newClusters is newRuns with kubectl.
func newClusters(t *testing.T) *runs {
	t.Helper()
	r := newRuns(t)
	r.env = append(r.env, "PATH="+r.bin+":"+apitest.Programs(t)+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
	return r
}

// cluster runs a script as the command of `up --api`.
func (r *runs) cluster(script string, flags ...string) (code int, out, errs string) {
	return r.do(append(append([]string{"up", "--api"}, flags...), "--", "sh", "-ec", script)...)
}

// waitFor creates a pod that sleeps, and waits for it.
func waitFor(name string) string {
	return fmt.Sprintf("kubectl run %[1]s --image=%[2]s -- sleep 1000 && kubectl wait --for=condition=Ready pod/%[1]s --timeout=%[3]ds; ", name, image, int(patience.Seconds()))
}

func TestKubectlInAClusterForACommand(t *testing.T) {
	r := newClusters(t)
	r.manifest("shop", fmt.Sprintf(shop, image))
	code, out, errs := r.cluster(waitFor("x")+`kubectl apply -f shop.yaml; kubectl rollout status deploy/shop --timeout=100s; kubectl get nodes; kubectl exec x -- wget -qO- http://shop/; exit 3`, "--grace=0s")
	if code != 3 || !hasLine(out, "e2e", "Ready") || !strings.Contains(out, "\nserved\n") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	r.nothing("after pods of clients")
	// Pods from files exist before the command starts, and only files can change them.
	code, out, errs = r.cluster("kubectl get pods; kubectl delete pod web", "-f", r.manifest("web", serving("web")))
	if code != 1 || !hasLine(out, "web", "1/1", "Running") || !strings.Contains(errs, "is defined in") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
}

// TestKubectlFindsAClusterInASecond: one second from the start of `monopod up` to the first response for kubectl. A machine is busy if
// kubectl alone takes three times as long as it uses processors; then the limit is a multiple of that.
func TestKubectlFindsAClusterInASecond(t *testing.T) {
	r := newClusters(t)
	best, floor, used := time.Hour, time.Hour, time.Hour
	for range 5 {
		began := time.Now()
		alone := exec.Command(filepath.Join(apitest.Programs(t), "kubectl"), "version", "--client")
		if out, err := alone.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		floor = min(floor, time.Since(began))
		used = min(used, alone.ProcessState.UserTime()+alone.ProcessState.SystemTime())
		best = min(best, r.firstResponse())
	}
	limit := time.Second
	if floor > 3*used {
		limit = max(limit, 6*floor)
	}
	figures := fmt.Sprintf("at best, the first answer came after %v; kubectl alone takes %v, and %v of processors", best.Round(time.Millisecond), floor.Round(time.Millisecond), used.Round(time.Millisecond))
	t.Log(figures)
	if best > limit {
		t.Errorf("%s: more than %v", figures, limit)
	}
}

// firstResponse returns the time from the start of `monopod up --api` to the end of its command `kubectl get nodes`.
func (r *runs) firstResponse() time.Duration {
	r.t.Helper()
	began := time.Now()
	c := exec.Command(filepath.Join(r.bin, "monopod-client"), "up", "--api", "--", "sh", "-c", "kubectl get nodes >/dev/null && date +%s.%N") // without the race detector
	c.Env = r.env
	out, err := c.CombinedOutput()
	at, parseErr := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil || parseErr != nil {
		r.t.Fatalf("%v, %v: %s", err, parseErr, out)
	}
	took := time.Duration(at*1e9) - time.Duration(began.UnixNano())
	r.t.Logf("the first answer came after %v, and all was removed after %v", took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	return took
}

func TestKubectlInClustersBesideADaemon(t *testing.T) {
	in, admin := servesKubernetes(t)
	r := newClusters(t)
	r.env = append(r.env, "MONOPOD_API_SERVER__ADDRESS="+strings.TrimPrefix(admin.prints("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"), "https://"))
	var group sync.WaitGroup
	for i := range 2 {
		group.Go(func() {
			// Each sees only its own pod, while both exist.
			script := fmt.Sprintf("%s touch here-%d; for i in $(seq 3000); do [ $(ls here-* | wc -l) = 2 ] && break; sleep 0.02; done; kubectl get pods -A -o name; exit 4%[2]d", waitFor("own"), i)
			code, out, errs := r.cluster(script, "--grace=0s")
			if code != 40+i || !strings.HasSuffix(out, "condition met\npod/own\n") {
				t.Errorf("exit code %d:\n%s%s", code, out, errs)
			}
		})
	}
	group.Wait()
	r.nothing("after both")
	if out := admin.prints("get", "pods", "-A", "-o", "name"); out != "pod/file\n" {
		t.Errorf("the daemon has %s", out)
	}
	in.ready("file")
}

func TestKubectlInAClusterThatIsInterruptedOrKilled(t *testing.T) {
	r := newClusters(t)
	start := func(script string) *exec.Cmd {
		c, out, errs := r.command("up", "--api", "--grace=0s", "--", "sh", "-ec", waitFor("x")+script)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // with a terminal, SIGINT would be taken for one that it has sent to the command
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		r.eventually("the command waits", func() error {
			if !out.contains("begun") {
				return fmt.Errorf("%s%s", out, errs)
			}
			return nil
		})
		return c
	}
	c := start("trap 'exit 5' INT; echo begun; while :; do sleep 0.1; done")
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit code %d", code)
	}
	r.nothing("after SIGINT")
	c = start("echo begun; exec sleep 1000")
	_ = c.Process.Kill()
	_ = c.Wait()
	if len(r.traces()) == 0 {
		t.Error("a killed run left nothing to remove")
	}
	if code, out, errs := r.cluster("kubectl get pods -A"); code != 0 || out != "" || !strings.Contains(errs, "removing leftovers of a killed run") {
		t.Errorf("the next run: exit code %d:\n%s%s", code, out, errs)
	}
	r.nothing("after the next run")
}

func TestKubectlInAClusterOfAGoTest(t *testing.T) {
	r := newClusters(t)
	for _, v := range r.env {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "MONOPOD") {
			t.Setenv(name, value)
		}
	}
	t.Run("a test", func(t *testing.T) {
		k := &kubectl{t: t, program: filepath.Join(apitest.Programs(t), "kubectl"), env: []string{"HOME=" + t.TempDir()}}
		k.kubeconfig = fixture.Config{API: true}.Up(t).Kubeconfig()
		k.says([][2]string{{"create configmap c --from-literal a=b", "created"}, {"get configmaps", "c "}, {"get nodes", "Ready"}})
	})
}

// TestKubectlInTheDocsOfClusters runs the commands of the documents, and the step of the example for GitHub, that need kubectl.
func TestKubectlInTheDocsOfClusters(t *testing.T) {
	r := newClusters(t)
	testimages.Archive(t, filepath.Join(r.dir, "images", "example.tar"), exampleImage)
	n := 0
	for _, file := range []string{"../docs/ci.md", "../examples/ci/workflow.yml"} {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for sc := bufio.NewScanner(f); sc.Scan(); {
			line := strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(sc.Text()), "run: "), "sudo ")
			if !strings.HasPrefix(line, "monopod up --api ") {
				continue
			}
			n++
			c := exec.Command("bash", "-c", line)
			c.Dir, c.Env = "..", r.env
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		}
	}
	if n < 3 {
		t.Errorf("%d commands were found", n)
	}
}
