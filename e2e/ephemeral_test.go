//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// debugger returns the status of an ephemeral container.
func debugger(p corev1.Pod, name string) corev1.ContainerState {
	all := p.Status.EphemeralContainerStatuses
	if i := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
		return all[i].State
	}
	return corev1.ContainerState{}
}

// terminal is a user of kubectl on a terminal.
type terminal struct {
	k    *kubectl
	c    *exec.Cmd
	user *os.File
	fd   int // of user, whose Fd would make reads block
	said strings.Builder
}

// onTerminal starts kubectl on a terminal of a size.
func (k *kubectl) onTerminal(rows, columns uint16, args ...string) *terminal {
	k.t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	u := &terminal{k: k, user: os.NewFile(uintptr(fd), "ptmx"), fd: fd}
	k.t.Cleanup(func() { _ = u.user.Close() })
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	u.resize(rows, columns)
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	u.c = exec.Command(k.program, append([]string{"--kubeconfig", k.kubeconfig}, args...)...)
	k.ran.add(k.step, args)
	u.c.Env, u.c.Stdin, u.c.Stdout, u.c.Stderr = append(os.Environ(), k.env...), tty, tty, tty
	u.c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = u.c.Start()
	_ = tty.Close()
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = u.c.Process.Kill() })
	return u
}

// resize changes the size of the terminal, of which the kernel informs kubectl.
func (u *terminal) resize(rows, columns uint16) {
	u.k.t.Helper()
	if err := unix.IoctlSetWinsize(u.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		u.k.t.Fatal(err)
	}
}

// reads reads until the text appears.
func (u *terminal) reads(until string) {
	u.k.t.Helper()
	from, b := u.said.Len(), make([]byte, 4096)
	for end := time.Now().Add(patience); !strings.Contains(u.said.String()[from:], until); {
		_ = u.user.SetReadDeadline(end)
		n, err := u.user.Read(b)
		u.said.Write(b[:n])
		if err != nil {
			u.k.t.Fatalf("%v: no %q: %v\n%s", u.c.Args, until, err, u.said.String())
		}
	}
}

// types types lines, and reads until the response to each appears.
func (u *terminal) types(lines ...[2]string) {
	u.k.t.Helper()
	for _, line := range lines {
		if _, err := u.user.WriteString(line[0] + "\n"); err != nil {
			u.k.t.Fatal(err)
		}
		u.reads(line[1])
	}
}

// ends waits for the end of kubectl, and returns all that it has printed.
func (u *terminal) ends() string {
	u.k.t.Helper()
	if err := u.c.Wait(); err != nil {
		u.k.t.Errorf("%v: %v\n%s", u.c.Args, err, u.said.String())
	}
	return u.said.String()
}

// talks runs a kubectl command that attaches on a terminal: it types each line, and reads until the response appears.
func (k *kubectl) talks(lines [][2]string, args ...string) string {
	k.t.Helper()
	u := k.onTerminal(24, 80, args...)
	u.reads("try pressing enter")
	u.types([2]string{"", "# "})
	u.types(lines...)
	return u.ends()
}

// debugs a pod, and so does `monopod debug`: the container sees the processes of its target, survives the agent, and is removed with the
// pod.
func (k *kubectl) debugs(in *instance) {
	admin, t := k, k.t
	t.Helper()
	before := in.ready("file") // from a file: it cannot be changed, but can be debugged

	out := admin.talks([][2]string{{"echo $((6*7))", "42"}, {"ps", "sleep 3600"}, {"exit 7", ""}},
		"debug", "-it", "pod/file", "--image="+image, "--container=seen", "--target=c", "--profile=general", "--", "sh")
	if !strings.Contains(out, "sleep 3600") {
		t.Errorf("it does not see the processes of its target:\n%s", out)
	}
	in.pod("file", "its exit code is kept", func(p corev1.Pod) bool {
		end := debugger(p, "seen").Terminated
		return end != nil && end.ExitCode == 7
	})
	if out, err := in.run("debug", "file", "--image", image, "-c", "stays", "--", "sh", "-c", "while echo tick; do sleep 1; done"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	stays := in.pod("file", "it runs", func(p corev1.Pod) bool { return debugger(p, "stays").Running != nil })
	if out, err := in.run("exec", "-q", "file", "-c", "stays", "--", "ps"); err != nil || strings.Contains(out, "trap") || !strings.Contains(out, "tick") {
		t.Errorf("without a target it has processes of its own: %v\n%s", err, out)
	}
	if out, err := in.run("debug", "file", "-i", "-q", "-c", "short", "--", "sh", "-c", "echo short; exit 3"); err == nil || !strings.Contains(out, "short") {
		t.Errorf("one that ends at once: %v\n%s", err, out)
	}

	in.kill9()
	in.start()
	after := in.pod("file", "all is as before", func(p corev1.Pod) bool {
		return debugger(p, "stays").Running != nil && debugger(p, "seen").Terminated != nil && debugger(p, "short").Terminated != nil
	})
	was, is := debugger(stays, "stays").Running.StartedAt, debugger(after, "stays").Running.StartedAt
	if after.UID != before.UID || containerID(after, "c") != containerID(before, "c") || !was.Equal(&is) {
		t.Errorf("the pod or its debugger was restarted: %+v", after.Status)
	}
	admin.says([][2]string{{"exec file -c stays -- echo here", "here"}, {"logs file -c stays --tail=1", "tick"}, {"logs file -c seen", "42"}, {"logs file -c short", "short"}})
	lines, end := admin.follows("attach", "file", "-c", "stays")
	if !lines.Scan() || lines.Text() != "tick" {
		t.Errorf("attached: %q", lines.Text())
	}
	end()
	if out := admin.prints("get", "pod", "file", "-o", "jsonpath={.spec.ephemeralContainers[*].name}"); out != "seen stays short" {
		t.Errorf("%q", out)
	}
	for want, args := range map[string][]string{
		"may not be changed": {"patch", "pod", "file", "--subresource=ephemeralcontainers", "-p", `{"spec":{"ephemeralContainers":[{"name":"stays","image":"other"}]}}`},
		"livenessProbe":      {"patch", "pod", "file", "--subresource=ephemeralcontainers", "-p", `{"spec":{"ephemeralContainers":[{"name":"x","image":"i","livenessProbe":{"periodSeconds":3}}]}}`},
		"Not found":          {"debug", "file", "--image=" + image, "--target=nope"},
	} {
		if _, errs, code := admin.try("", args...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("kubectl %v: %d %s", args, code, errs)
		}
	}
	if out, err := in.run("describe", "pod", "file"); err != nil || !strings.Contains(out, "stays") {
		t.Errorf("describe: %v\n%s", err, out)
	}
	in.drop("file")
	in.gone("file")
}
