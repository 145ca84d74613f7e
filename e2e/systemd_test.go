//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/budget"
)

// onSystemd returns the monopod of a machine dedicated to tests, installed as users do: as a service of systemd, with the default
// directories.
func onSystemd(t *testing.T) *instance {
	t.Helper()
	if os.Getenv("MONOPOD_E2E_SYSTEMD") == "" {
		t.Skip("needs a machine of its own with systemd: .ci/vm-systemd")
	}
	return &instance{
		t: t, dir: "/var/lib/monopod", state: "/run/monopod", manifests: "/etc/monopod/manifests", config: "/etc/monopod/config.yaml",
		cgroup: "/monopod", bin: binaries(t), log: &syncBuffer{},
	}
}

// install installs the service with these lines of configuration.
func (in *instance) install(config ...string) {
	in.t.Helper()
	images := "/var/lib/images"
	for _, dir := range []string{filepath.Dir(in.config), images} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			in.t.Fatal(err)
		}
	}
	in.copyFile(testImage(in.t), filepath.Join(images, "busybox.tar"))
	in.write(in.config, strings.Join(append(config, "preloadDirectories: ["+images+"]", "logging: {level: debug}"), "\n")+"\n")
	in.must(filepath.Join(in.bin, "monopod"), "install", "--config", in.config)
	in.state = "/run/monopod"
	in.eventually("the service is active", func() error {
		if got := in.must("systemctl", "show", "-p", "ActiveState", "--value", "monopod"); got != "active" {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// must runs a program and returns its output.
func (in *instance) must(name string, args ...string) string {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(in.t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		journal, _ := exec.Command("journalctl", "-u", "monopod", "-n", "60", "--no-pager").Output()
		in.t.Fatalf("%s %s: %v: %s\n%s", name, strings.Join(args, " "), err, out, journal)
	}
	return strings.TrimSpace(string(out))
}

// nothingLeft uninstalls it and checks for leftovers.
func (in *instance) nothingLeft() {
	in.t.Helper()
	in.must("/usr/local/bin/monopod", "uninstall", "--yes", "--config", in.config)
	in.leftovers()
	for _, path := range []string{in.dir, in.state, "/usr/local/bin/monopod", "/etc/systemd/system/monopod.service", "/etc/systemd/logind.conf.d/99-monopod.conf", "/sys/fs/cgroup/monopod", "/sys/fs/cgroup/monopod-shims", "/var/log/pods"} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			in.t.Errorf("%s is left: %v", path, err)
		}
	}
	if out := in.must("ip", "-br", "link"); strings.Contains(out, "monopod") {
		in.t.Errorf("links: %s", out)
	}
}

// TestSystemdService: the service reports its state and is restarted when its loops hang, without affecting pods. Actions of systemd on the
// service do not affect them, either.
func TestSystemdService(t *testing.T) {
	in := onSystemd(t)
	in.install()
	const mounts = "mkdir -p /h/m; mount -t tmpfs marked /h/m; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; ulimit -n; ulimit -H -c"
	in.put("free", sleeper("free", mounts, `    securityContext: {privileged: true}
    volumeMounts: [{name: h, mountPath: /h, mountPropagation: Bidirectional}]
  volumes: [{name: h, hostPath: {path: /srv/h, type: DirectoryOrCreate}}]`))
	in.put("plain", sleeper("plain", "env"))
	in.ready("free")
	in.ready("plain")
	untouched := in.untouched("free", "plain")
	in.eventually("the mount of a container is seen by the host", func() error {
		if b, err := os.ReadFile("/proc/1/mountinfo"); err != nil || !bytes.Contains(b, []byte(" /srv/h/m ")) {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
	all, err := os.ReadFile("/proc/1/status")
	if err != nil {
		t.Fatal(err)
	}
	_, bounding, _ := strings.Cut(string(all), "CapBnd:\t")
	bounding, _, _ = strings.Cut(bounding, "\n")
	if out, err := in.run("logs", "free"); err != nil || out != "CapBnd:\t"+bounding+"\nNoNewPrivs:\t0\nSeccomp:\t0\n1024\nunlimited\n" {
		t.Errorf("a privileged container has %q, %v", out, err)
	}
	if out, err := in.run("logs", "plain"); err != nil || strings.Contains(out, "NOTIFY") || strings.Contains(out, "WATCHDOG") {
		t.Errorf("%v: %s", err, out)
	}
	in.eventually("the status says how the pods are", func() error {
		if got := in.must("systemctl", "show", "-p", "StatusText", "--value", "monopod"); got != "2 pods: 2 running, 0 completed, 0 not" {
			return errors.New(got)
		}
		return nil
	})
	// From here on it has a budget, in a cgroup below that of the unit, which the shims leave: otherwise systemd could not start it again.
	const unit = "/system.slice/monopod.service"
	in.write(in.config, "agentMemoryBudget: 96Mi\nagentCPUBudget: 1500m\n"+in.read("../../../etc/monopod/config.yaml"))
	budgeted := func() {
		t.Helper()
		inBudget(in, unit+"/agent", budget.Limits{Memory: 96 << 20, MilliCPU: 1500}, 2)
		for _, pid := range shimsOf(in) {
			if got := cgroupsOf(t, pid)[""]; got != "/monopod-shims" {
				t.Errorf("shim %d is in %s", pid, got)
			}
		}
		if left := readCgroup(t, unit, "cgroup.procs", ""); left != "" {
			t.Errorf("in the cgroup of the unit are still %s", left)
		}
	}
	in.must("systemctl", "restart", "monopod")
	untouched("after a restart")
	budgeted()
	in.must("systemctl", "stop", "monopod")
	in.must("systemctl", "start", "monopod")
	untouched("after a stop")
	budgeted()

	if err := os.MkdirAll("/run/systemd/system/monopod.service.d", 0o755); err != nil {
		t.Fatal(err)
	}
	in.write("/run/systemd/system/monopod.service.d/quick.conf", "[Service]\nWatchdogSec=8\n")
	in.must("systemctl", "daemon-reload")
	in.must("systemctl", "restart", "monopod")
	pid, err := strconv.Atoi(in.must("systemctl", "show", "-p", "MainPID", "--value", "monopod"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // more than the watchdog would wait for
		last := in.must("systemctl", "show", "-p", "WatchdogTimestampMonotonic", "--value", "monopod")
		in.eventually("the watchdog is pinged", func() error {
			if now := in.must("systemctl", "show", "-p", "WatchdogTimestampMonotonic", "--value", "monopod"); now == last {
				return errors.New("the last time was " + now)
			}
			return nil
		})
	}
	if now := in.must("systemctl", "show", "-p", "MainPID", "--value", "monopod"); now != strconv.Itoa(pid) {
		t.Errorf("the watchdog has bitten a monopod that was well: %s", in.must("journalctl", "-u", "monopod", "-n", "40", "--no-pager"))
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	in.eventually("a monopod that hangs is started again", func() error {
		now := in.must("systemctl", "show", "-p", "MainPID,ActiveState", "--value", "monopod")
		if strings.Contains(now, strconv.Itoa(pid)) || !strings.Contains(now, "active") || strings.Contains(now, "inactive") {
			return errors.New(now)
		}
		return nil
	})
	in.eventually("it answers", func() error { _, err := in.run("get", "pods"); return err })
	untouched("after the watchdog")
	budgeted()
	in.must("umount", "/srv/h/m")
	in.nothingLeft()
}

// TestSystemdShutdown: a reboot waits for pods, lowest priority first, and they run again afterwards.
func TestSystemdShutdown(t *testing.T) {
	in := onSystemd(t)
	file := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if os.Getenv("MONOPOD_E2E_BOOT") == "1" {
		in.install("shutdownGracePeriod: 40s", "shutdownGracePeriodCriticalPods: 20s")
		for name, class := range map[string]string{"low": "", "vital": "\n  priorityClassName: system-node-critical"} {
			in.put(name, sleeper(name, "trap 'sleep 3; echo "+name+" >>/h/order; exit 0' TERM; echo "+name+" started >>/h/starts", "    volumeMounts: [{name: h, mountPath: /h}]\n  volumes: [{name: h, hostPath: {path: /srv/order, type: DirectoryOrCreate}}]"+class))
			in.put(name, strings.Replace(file(filepath.Join(in.manifests, name+".yaml")), "terminationGracePeriodSeconds: 2", "terminationGracePeriodSeconds: 30", 1))
		}
		in.ready("low")
		in.ready("vital")
		in.eventually("monopod delays shutdowns", func() error {
			if out := in.must("systemd-inhibit", "--list", "--no-pager"); !strings.Contains(out, "monopod") {
				return errors.New(out)
			}
			return nil
		})
		if got := in.must("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "InhibitDelayMaxUSec"); got != "t 45000000" {
			t.Errorf("logind waits %s", got)
		}
		in.must("systemctl", "reboot", "--no-block")
		in.eventually("pods are stopped", func() error {
			all, err := in.pods()
			if err == nil && (all["low"].Status.Reason != "Terminated" || all["low"].Status.Phase != corev1.PodFailed) {
				err = errors.New(brief(all["low"]))
			}
			return err
		})
		return
	}
	if got := file("/srv/order/order"); got != "low\nvital\n" {
		t.Errorf("stopped: %q", got)
	}
	if got := file("/var/lib/monopod/graceful_node_shutdown_state"); !strings.Contains(got, `"endTime"`) {
		t.Errorf("marker: %s", got)
	}
	in.ready("low") // the service was started by systemd
	in.ready("vital")
	if got := file("/srv/order/starts"); strings.Count(got, "low started") != 2 || strings.Count(got, "vital started") != 2 {
		t.Errorf("starts: %q", got)
	}
	in.nothingLeft()
}
