//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// containerCgroup is the cgroup of the pod's only container.
func containerCgroup(in *instance, p corev1.Pod) string {
	return in.cgroups.Container(podCgroup(in, p), strings.TrimPrefix(containerID(p, "c"), "containerd://"))
}

// meminfo returns a line of /proc/meminfo times 1024: bytes, unless the line is a number of pages.
func meminfo(t *testing.T, name string) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), name+":")
	n, err := strconv.ParseInt(strings.Fields(rest + " x")[0], 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n << 10
}

// TestResourcesOfSwap: a Burstable container gets its share of the swap and can exceed its memory, a Guaranteed one gets none.
func TestResourcesOfSwap(t *testing.T) {
	if !cgroupV2() || meminfo(t, "SwapTotal") == 0 {
		t.Skip("needs cgroup v2 and a machine with swap; .ci/vm runs this")
	}
	in := newInstance(t, "memorySwap: {swapBehavior: LimitedSwap}")
	in.start()
	const request, limit = 24 << 20, 26 << 20
	share := int64(float64(request)/float64(meminfo(t, "MemTotal"))*float64(meminfo(t, "SwapTotal"))) / 4096 * 4096
	if share < 6<<20 {
		t.Fatalf("the share of %d bytes is too small to see anything", share)
	}
	in.put("some", sleeper("some", "mkfifo /dev/shm/more; dd if=/dev/zero of=/dev/shm/x bs=1M count=20; cat /dev/shm/more; dd if=/dev/zero of=/dev/shm/y bs=1M count=7; echo filled",
		fmt.Sprintf("    resources: {requests: {memory: %d}, limits: {memory: %d}}", request, limit)))
	in.put("sure", sleeper("sure", "echo", "    resources: {limits: {cpu: 100m, memory: 24Mi}}"))
	some, sure := in.ready("some"), in.ready("sure")
	if got := readCgroup(t, containerCgroup(in, some), "memory.swap.max", ""); got != fmt.Sprint(share) {
		t.Errorf("the burstable container may swap %s, want %d", got, share)
	}
	if got := readCgroup(t, containerCgroup(in, sure), "memory.swap.max", ""); got != "0" {
		t.Errorf("the guaranteed container may swap %s", got)
	}
	// A container that reaches its limit while the disk is busy is killed although there is swap: the kernel does not wait for the disk. So
	// memory is swapped first, and it never reaches the limit.
	reclaim := filepath.Join("/sys/fs/cgroup", containerCgroup(in, some), "memory.reclaim")
	in.eventually("enough memory is swapped", func() error {
		err := os.WriteFile(reclaim, []byte("1M"), 0) // EAGAIN: it was less
		swapped, other := strconv.Atoi(readCgroup(t, containerCgroup(in, some), "memory.swap.current", ""))
		if other != nil {
			return other
		}
		if swapped < 5<<20 {
			return errors.Join(fmt.Errorf("%d bytes are swapped", swapped), err)
		}
		return nil
	})
	if _, err := in.run("exec", "some", "--", "sh", "-c", "echo > /dev/shm/more"); err != nil {
		t.Fatal(err)
	}
	in.eventually("the container holds more than its memory", func() error {
		swapped := readCgroup(t, containerCgroup(in, some), "memory.swap.current", "")
		out, err := in.run("logs", "some")
		if err == nil && (!strings.Contains(out, "filled") || swapped == "0") {
			err = fmt.Errorf("%s bytes are swapped, the log is %q", swapped, out)
		}
		return err
	})
	if after := in.ready("some"); after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the container was restarted: %s", brief(after))
	}
}

// TestResourcesOfHugePages: a pod may use as many huge pages as it requests; pods without a request may use none.
func TestResourcesOfHugePages(t *testing.T) {
	there, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers") // on v2 only
	if err != nil || !strings.Contains(string(there), "hugetlb") || meminfo(t, "HugePages_Total") == 0 {
		t.Skip("needs cgroup v2 and a machine with huge pages; .ci/vm runs this")
	}
	in := newInstance(t)
	in.start()
	in.put("huge", sleeper("huge", "echo", "    resources: {limits: {hugepages-2Mi: 4Mi, memory: 32Mi}}"))
	in.put("plain", sleeper("plain", "echo"))
	huge, plain := in.ready("huge"), in.ready("plain")
	for cgroup, want := range map[string]string{
		podCgroup(in, huge): "4194304", containerCgroup(in, huge): "4194304", podCgroup(in, plain): "0", containerCgroup(in, plain): "0",
	} {
		if got := readCgroup(t, cgroup, "hugetlb.2MB.max", "hugetlb/hugetlb.2MB.limit_in_bytes"); got != want {
			t.Errorf("%s may use %s bytes of huge pages, want %s", cgroup, got, want)
		}
	}
}

// TestResourcesOfWholeProcessors: a Guaranteed container that requests a whole processor has it exclusively.
func TestResourcesOfWholeProcessors(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors")
	}
	in := newInstance(t, `cpuManagerPolicy: static`, `reservedSystemCPUs: "0"`)
	in.start()
	const look = "grep Cpus_allowed_list /proc/self/status"
	in.put("shares", sleeper("shares", "while :; do "+look+"; sleep 1; done & true"))
	in.ready("shares")
	in.put("pinned", sleeper("pinned", look, fmt.Sprintf("    resources: {limits: {cpu: %d, memory: 32Mi}}", runtime.NumCPU()-1)))
	in.ready("pinned")
	others := fmt.Sprintf("1-%d", runtime.NumCPU()-1)
	if runtime.NumCPU() == 2 {
		others = "1"
	}
	for name, want := range map[string]string{"pinned": "Cpus_allowed_list:\t" + others + "\n", "shares": "Cpus_allowed_list:\t0\n"} {
		in.eventually(name+" says "+want, func() error {
			out, err := in.run("logs", name)
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("log is %q", out)
			}
			return err
		})
	}
}
