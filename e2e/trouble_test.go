//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// shimOf returns the process of a container's shim.
func (in *instance) shimOf(p corev1.Pod) int {
	in.t.Helper()
	for _, proc := range in.table() {
		if proc.shim != "" && strings.HasSuffix(containerID(p, "c"), proc.shim) {
			return proc.pid
		}
	}
	in.t.Fatalf("pod %s has no shim", p.Name)
	return 0
}

func TestAnUnresponsiveShimBlocksNoOtherPod(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("stuck", sleeper("stuck", "echo start"))
	in.put("other", sleeper("other", "echo start"))
	stuck, other := in.ready("stuck"), in.ready("other")
	pid := in.shimOf(stuck)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	in.put("other", sleeper("other", "echo changed"))
	in.pod("other", "was changed", func(p corev1.Pod) bool { return isReady(p) && containerID(p, "c") != containerID(other, "c") })
	in.put("third", sleeper("third", "echo start"))
	in.ready("third")
	in.kill9()
	in.start() // the kernel continues stopped orphans, with a SIGHUP
	after := in.ready("stuck")
	if containerID(after, "c") != containerID(stuck, "c") || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the container was restarted: %s", brief(after))
	}
}

func TestAKilledShimTakesItsContainerAlongAndItIsRestarted(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("orphan", sleeper("orphan", ": only-one-of-"+filepath.Base(in.state)))
	before := in.ready("orphan")
	if err := syscall.Kill(in.shimOf(before), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	after := in.pod("orphan", "runs again", func(p corev1.Pod) bool {
		return isReady(p) && containerID(p, "c") != containerID(before, "c")
	})
	last := after.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode == 0 {
		t.Errorf("the end of the first one is %s", brief(after))
	}
	in.eventually("one of them runs", func() error {
		n := 0
		for _, p := range in.table() {
			if p.mine && strings.Contains(p.cmdline, "only-one-of-") {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("%d processes run", n)
		}
		return nil
	})
}

func TestWhatAContainerLeavesInThePIDNamespaceOfTheHostEndsWithIt(t *testing.T) {
	in := newInstance(t)
	in.start()
	const pods = 8 // at once, so that some end while they are being started
	for i := range pods {
		in.put(fmt.Sprintf("quick%d", i), fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"quick%d"},"spec":{"hostPID":true,"restartPolicy":"Never",
			"containers":[{"name":"c","image":%q,"command":["sh","-c","for i in 1 2 3; do setsid sleep 4711 & done; exit 4"]}]}}`, i, image))
	}
	for i := range pods {
		in.pod(fmt.Sprintf("quick%d", i), "has failed", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	}
	in.eventually("its children are gone", func() error {
		for _, p := range in.table() {
			if p.shim == "" {
				return fmt.Errorf("%d runs on: %s", p.pid, p.cmdline)
			}
		}
		return nil
	})
}

func TestAPodWithTheLongestNameCanBeRunReadAndRemoved(t *testing.T) {
	in := newInstance(t)
	in.start()
	before := in.census()
	name := strings.Repeat(strings.Repeat("n", 62)+".", 4) + "n"
	in.put("long", strings.Replace(sleeper(name, "echo hello"), "labels: {app: "+name+"}", "labels: {}", 1))
	in.ready(name)
	in.eventually("its log can be read", func() error {
		out, err := in.run("logs", name)
		if err == nil && out != "hello\n" {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
	in.drop("long")
	in.gone(name)
	in.sameCensus(before)
}
