//go:build e2e

package container_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/record"
)

// TestATerminationMessageCannotFillTheDisk has an unprivileged container that writes 1,000 MB into its termination message, and
// into /etc/hosts and similar files.
func TestATerminationMessageCannotFillTheDisk(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.OpenWith(t, func(c *ctrd.Config) { c.UsagePeriod = 20 * time.Millisecond })
	pod := ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    terminationMessagePath: /var/message
    resources: {limits: {ephemeral-storage: 40Mi}}
    securityContext: {runAsUser: 1000, runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true, seccompProfile: {type: RuntimeDefault}}
    command: [sh, -c, "echo begin; dd if=/dev/zero of=/var/message bs=1M count=1000 2>&1; for f in hosts hostname resolv.conf; do echo x 2>&1 >>/etc/$f; done; echo last words >/var/message; echo end; exit 3"]
`, ctrdtest.TestImage))
	key := pod.Key()
	do := func(action runner.Action) error { return a.Apply(t.Context(), key, pod, action) }
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	for n := range 5 {
		c := a.Exit(t, key)
		a.Finishes(t, c, do)
		if got := a.Exit(t, key).Exit; got.Message != "last words\n" || got.ExitCode != 3 {
			t.Errorf("run %d: %+v", n, got)
		}
		if out := a.LogOf(t, key); !strings.Contains(out, "No space left on device") || strings.Count(out, "Permission denied")+strings.Count(out, "Read-only") < 3 {
			t.Errorf("run %d says %s", n, out)
		}
		if n == 3 {
			a.Stop(t) // the files stay where they are
			a = w.OpenWith(t, func(c *ctrd.Config) { c.UsagePeriod = 20 * time.Millisecond })
		}
		ctrdtest.Check(t, do(runner.Action{Kind: runner.CreateContainer, Container: "c", RestartCount: n + 1, Last: c.Exit}))
		ctrdtest.Check(t, do(runner.Action{Kind: runner.StartContainer, Container: "c"}))
		ctrdtest.Check(t, do(runner.Action{Kind: runner.RemoveContainer, Container: "c", ContainerID: c.ID}))
	}
	a.Finishes(t, a.Exit(t, key), do)
	var left []string
	ctrdtest.Check(t, filepath.WalkDir(a.Dirs.PodDir("uid-writer"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, "/messages/") {
			left = append(left, path)
		}
		return err
	}))
	if len(left) > 0 {
		t.Errorf("messages that are left: %v", left)
	}
	ctrdtest.Within(t, 10*time.Second, "it is measured", func() bool { return a.State(t, key).Sandbox.Disk != nil })
	if got := runner.Overuse(&pod.Object.Spec, a.State(t, key).Sandbox.Disk).Detail; got != "" {
		t.Errorf("it uses too much: %s", got)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, key))
	a.End(t)
}

// TestATerminationMessageOutlivesAPowerCut has a container that ended while the agent was down.
func TestATerminationMessageOutlivesAPowerCut(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	pod := ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: words}
spec:
  hostNetwork: true
  containers: [{name: c, image: %s, stdin: true, command: [sh, -c, "echo up; read go; echo last words >/dev/termination-log"]}]
`, ctrdtest.TestImage))
	key := pod.Key()
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	a.Says(t, key, "up")
	c := a.State(t, key).Containers[0]
	a.TypeIn(t, key, "go")
	ctrdtest.Within(t, 10*time.Second, "it has ended", func() bool {
		return ctrdtest.Exists(a.Dirs.MessageCopy("uid-words", c.ID)) && ctrdtest.Exists(a.Dirs.ExitFile(c.ID))
	})
	w.PowerCut(t, a)
	a = w.Open(t)
	if got := a.Exit(t, key).Exit; got.Message != "last words\n" {
		t.Errorf("%+v", got)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, key))
	a.End(t)
}

// TestFilesThatAKillKeptFromBeingMadeAreMade has sandboxes with a record and namespaces but without files, whose network could not
// be set up.
func TestFilesThatAKillKeptFromBeingMadeAreMade(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	damages := map[string]func(dir string){
		"nothing": func(dir string) { ctrdtest.Check(t, errors.Join(unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir))) },
		"empty":   func(dir string) { ctrdtest.Check(t, unix.Unmount(dir, unix.MNT_DETACH)) },
		"half": func(dir string) {
			ctrdtest.Check(t, errors.Join(os.Remove(filepath.Join(dir, "messages")), os.Truncate(filepath.Join(dir, "hosts"), 0), os.Remove(filepath.Join(dir, "resolv.conf"))))
		},
	}
	var pods []*manifests.Pod
	for name, damage := range damages {
		for _, network := range []string{"pod", "host"} {
			pod := ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s-%s}
spec:
  hostNetwork: %t
  containers:
  - {name: c, image: %s, command: [sh, -c, "grep -c . /etc/hosts /etc/hostname /etc/resolv.conf | grep -c :0; echo done; exec sleep 1000"]}
`, name, network, network == "host", ctrdtest.TestImage))
			pods = append(pods, pod)
			ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.CreateSandbox, UID: "uid-" + pod.Object.Name}))
			rec := a.Index.Sandbox(pod.Key())
			ctrdtest.Check(t, a.PodNetwork.WaitNetwork(t.Context(), rec.ID))
			if network == "pod" {
				_, err := a.Records.UpdateSandbox(a.NS(t.Context()), rec.ID, func(s *record.Sandbox) { s.Network = record.NetworkResult{} }, record.ExtNetwork)
				ctrdtest.Check(t, err)
			}
			damage(a.Dirs.PodFilesDir(rec.Meta.UID))
		}
	}
	a.Stop(t)
	a = w.Open(t)
	for _, pod := range pods {
		if a.State(t, pod.Key()).Sandbox.Network == runner.NetworkPending {
			ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.SetupNetwork}))
		}
		for _, act := range []runner.Action{
			{Kind: runner.EnsureImage, Container: "c"},
			{Kind: runner.CreateContainer, Container: "c"},
			{Kind: runner.StartContainer, Container: "c"},
		} {
			ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), pod, act))
		}
		ctrdtest.Within(t, 10*time.Second, "it has written", func() bool { return strings.HasSuffix(a.LogOf(t, pod.Key()), "done\n") })
		if got := a.LogOf(t, pod.Key()); got != "0\ndone\n" {
			t.Errorf("%s: so many files are empty: %s", pod.Key(), got)
		}
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	}
	a.End(t)
}
