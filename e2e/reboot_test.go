//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/budget"
)

// rebooting returns an instance whose files survive a reboot of the machine, and whether that has happened: .ci/vm -reboot runs the tests
// that use it twice, with a reboot between; one of them uses a third boot.
func rebooting(t *testing.T, extra ...string) (in *instance, again bool) {
	t.Helper()
	boot := os.Getenv("MONOPOD_E2E_BOOT")
	if boot == "" {
		t.Skip("needs a machine that is rebooted: .ci/vm -reboot")
	}
	dir := filepath.Join("/var/lib/rebooted", t.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	in = newInstanceIn(t, dir, extra...)
	if boot == "1" && !strings.Contains(t.Name(), "InTheMiddle") {
		t.Cleanup(syscall.Sync) // the boot ends with a power cut
	}
	if again = boot != "1"; again {
		t.Cleanup(in.cleanup)
	}
	return in, again
}

func TestRebootWithoutTheServerRunsAllPods(t *testing.T) {
	const ca = "/var/lib/rebooted/ca.pem"
	in, again := rebooting(t, `sources: [{name: fleet, url: "https://127.0.0.1:18443/pods.yaml", period: 1s, caFile: `+ca+`}]`)
	greeter := sleeper("greeter", "echo $GREETING", "    env: [{name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}]")
	if !again {
		site := &site{t: t, address: "127.0.0.1:18443"}
		site.says(strings.Join([]string{settingsOfFleet, greeter, sleeper("plain", ":")}, "---\n"))
		site.open()
		defer site.server.Close()
		site.authority(ca)
		in.start()
		in.ready("greeter")
		in.ready("plain")
		if err := in.signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		return
	}
	// The clock is in 1970 at first: pods come from the cache, although the server answers.
	right := time.Now()
	setClock(t, time.Unix(3600, 0))
	ours, site := newAuthority(t), &site{t: t, address: "127.0.0.1:18443"}
	ours.write(ca)
	site.shown.Store(ours.certificate(right.Add(-time.Hour), right.Add(24*time.Hour)))
	site.says(sleeper("another", ":"))
	site.open()
	in.start()
	untouched := in.untouched("greeter", "plain")
	if said := in.reports("the clock of this machine shows 1970-01-01; set the clock"); !strings.Contains(said, "this is the cached answer of ") {
		t.Errorf("get sources:\n%s", said)
	}
	site.server.Close()
	setClock(t, right.Add(time.Since(right)))
	if out, err := in.run("logs", "greeter"); err != nil || !strings.HasSuffix(out, "hello\n") {
		t.Errorf("logs: %q, %v", out, err)
	}
	if said := in.reports("connection refused"); !strings.Contains(said, "this is the cached answer of ") {
		t.Errorf("get sources:\n%s", said)
	}
	untouched("with the clock right and the server gone")
	in.write(in.config, strings.Replace(in.read("config.yaml"), "sources: ", "# sources: ", 1))
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	in.start()
	in.gone("greeter") // with its source
}

// TestRebootInto1970WithoutNetwork: the third boot of .ci/vm -reboot has a clock in 1970 and no network device. All pods run, but no
// CronJob and no completed Job, and when the clock jumps to the right time nothing is started again. A budget is configured, too.
func TestRebootInto1970WithoutNetwork(t *testing.T) {
	if os.Getenv("MONOPOD_E2E_BOOT") == "2" {
		return // that is for the others
	}
	in, again := rebooting(t, "agentMemoryBudget: 96Mi", "agentCPUBudget: 1500m")
	right, subnet := filepath.Join(in.dir, "right"), filepath.Join(in.dir, "subnet")
	running := []string{"bridge", "host", "applied", "work-0"}
	if !again {
		in.start()
		in.put("bridge", sleeper("bridge", ":"))
		in.put("host", strings.Replace(sleeper("host", ":"), "spec:\n", "spec:\n  hostNetwork: true\n", 1))
		in.put("jobs", jobOf("work", "sleep 100000")+"---\n"+jobOf("done", "echo done"))
		// The first scheduled times in 1970 are among these.
		in.put("yearly", fmt.Sprintf(`apiVersion: batch/v1
kind: CronJob
metadata: {name: yearly}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: %s, command: [echo, happy new year]}]}}}}
`, image))
		in.does("apply", "-f", in.file("applied.yaml", sleeper("applied", ":")))
		for _, name := range running {
			in.ready(name)
		}
		in.pod("done-0", "has succeeded", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		if err := in.signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		in.write(right, time.Now().Format(time.RFC3339))
		in.write(subnet, in.subnet)
		return
	}
	if now := time.Now(); now.UTC().Year() != 1970 {
		t.Fatalf("it is %v", now)
	}
	if links, err := net.Interfaces(); err != nil || len(links) != 1 {
		t.Fatalf("there are the links %v, %v", links, err)
	}
	in.write(in.config, strings.Replace(in.read("config.yaml"), "podCIDR: "+in.subnet, "podCIDR: "+in.read("subnet"), 1))
	in.start()
	untouched := in.untouched(running...)
	in.podNames(append(running, "done-0")...)
	if p := in.ready("bridge"); p.Status.PodIP == "" {
		t.Errorf("the pod has no address: %s", brief(p))
	}
	inBudget(in, in.cgroup+"-agent", budget.Limits{Memory: 96 << 20, MilliCPU: 1500}, len(running))
	then, err := time.Parse(time.RFC3339, in.read("right"))
	if err != nil {
		t.Fatal(err)
	}
	setClock(t, then.Add(time.Hour))
	in.put("later", sleeper("later", ":")) // whatever else happens
	in.ready("later")
	untouched("with the clock right")
	in.podNames(append(running, "done-0", "later")...)
}

// jobOf is a Job with one pod.
func jobOf(name, script string) string {
	return fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s}\nspec: {template: {spec: {restartPolicy: OnFailure, terminationGracePeriodSeconds: 1, containers: [{name: c, image: %s, command: [sh, -c, %q]}]}}}\n", name, image, script)
}
