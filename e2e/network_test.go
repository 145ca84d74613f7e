//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
)

// served is a pod that serves its name on a host port.
func served(name string, port int32) string {
	return sleeper(name, fmt.Sprintf("mkdir -p /tmp/w; echo %s > /tmp/w/index.html; httpd -p 80 -h /tmp/w", name), fmt.Sprintf("    ports: [{containerPort: 80, hostPort: %d}]", port))
}

// bridge is the name of the instance's bridge.
func (in *instance) bridge() string {
	in.t.Helper()
	ports := in.bridgePorts()
	if len(ports) == 0 {
		in.t.Fatal("the bridge has no ports")
	}
	return filepath.Base(filepath.Dir(filepath.Dir(ports[0])))
}

// tables returns the nftables tables that contain the instance's subnet.
func (in *instance) tables() (names []string) {
	in.t.Helper()
	out, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		in.t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name := strings.TrimPrefix(strings.TrimSpace(line), "table ")
		rules, err := exec.Command("nft", append([]string{"list", "table"}, strings.Fields(name)...)...).Output()
		if err == nil && strings.Contains(name, "monopod_") && strings.Contains(string(rules), in.subnet) {
			names = append(names, name)
		}
	}
	return names
}

func (in *instance) shell(command string) {
	in.t.Helper()
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		in.t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// TestTheNetworkOfRunningPodsIsRepaired, also if it was damaged while the agent was down. No container is restarted, the pod keeps its
// address, and an event reports the repair.
func TestTheNetworkOfRunningPodsIsRepaired(t *testing.T) {
	in := newInstance(t, fmt.Sprintf("bridgeName: mp-e2e-%d", os.Getpid())) // no other test gets its name while it is gone
	in.start()
	port := ports.Take(t)
	in.put("web", served("web", port))
	in.answer(port, "web")
	before := in.ready("web")
	link := func() string { return filepath.Base(in.bridgePorts()[0]) }
	bridge, tables := in.bridge(), in.tables()
	if len(tables) != 1 {
		t.Fatalf("tables %v", tables)
	}
	damages := []struct{ command, event string }{
		{"nft delete table " + tables[0], ""},
		{"ip link del " + link(), "eth0 was deleted"},
		{"ip link del " + bridge, "was detached from the bridge"},
	}
	for _, d := range damages {
		in.shell(d.command)
		in.answer(port, "web")
		if d.event != "" {
			in.happens([]string{"web"}, "NetworkRepaired", d.event)
		}
	}
	in.kill9()
	in.shell("nft delete table " + tables[0] + "; ip link del " + link() + "; ip link del " + bridge)
	in.start()
	in.answer(port, "web")
	after := in.pod("web", "is ready", isReady)
	if containerID(before, "c") != containerID(after, "c") || restarts(after) != 0 || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("before %s, after %s", brief(before), brief(after))
	}
}

// TestAHostPortOfAnotherMonopodOrProcessIsRefused: the second pod waits, reports which process has the port, and starts when the port is
// free, even if the monopod of the first one was killed and never came back.
func TestAHostPortOfAnotherMonopodOrProcessIsRefused(t *testing.T) {
	one, two := newInstance(t), newInstance(t)
	one.start()
	two.start()
	port := ports.Take(t)
	one.put("first", served("first", port))
	one.answer(port, "first")
	two.put("second", served("second", port))
	two.explains("second", cause.HostPortPod, fmt.Sprintf("host port %d/TCP is taken by pod default/first of another monopod (%s", port, one.dir))
	two.happens([]string{"second"}, "Warning HostPortConflict", "is taken by pod default/first of another monopod")
	one.kill9()
	two.explains("second", cause.HostPortPod, "taken by pod default/first of another monopod")
	one.answer(port, "first")
	one.start()
	one.drop("first")
	two.answer(port, "second")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := int32(l.Addr().(*net.TCPAddr).Port)
	two.put("third", served("third", taken))
	two.explains("third", cause.HostPortProcess, fmt.Sprintf("host port %d/TCP is taken by process", taken), fmt.Sprintf("pid %d", os.Getpid()))
	two.happens([]string{"third"}, "Warning HostPortConflict", "is taken by process")
	if p := two.pod("third", "waits", func(p corev1.Pod) bool { return len(p.Status.ContainerStatuses) == 1 }); isReady(p) {
		t.Error(brief(p))
	}
	_ = l.Close()
	two.answer(taken, "third")
}
