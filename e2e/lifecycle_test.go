//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// diary is a file on the host in which containers record their actions; each line is one word.
type diary struct {
	in   *instance
	path string
}

func (in *instance) newDiary(name string) *diary {
	in.t.Helper()
	d := &diary{in: in, path: filepath.Join(in.dir, "diary-"+name)}
	if err := os.MkdirAll(d.path, 0o777); err != nil {
		in.t.Fatal(err)
	}
	return d
}

func (d *diary) words() []string {
	b, err := os.ReadFile(filepath.Join(d.path, "words"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// wait returns when the diary contains exactly these words; the order of words joined by + does not matter.
func (d *diary) wait(want string) {
	d.in.t.Helper()
	d.in.eventually("the diary says "+want, func() error {
		if got := d.words(); !says(got, want) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

func says(got []string, want string) bool {
	for group := range strings.FieldsSeq(want) {
		words := slices.Sorted(strings.SplitSeq(group, "+"))
		if len(got) < len(words) || !slices.Equal(slices.Sorted(slices.Values(got[:len(words)])), words) {
			return false
		}
		got = got[len(words):]
	}
	return len(got) == 0
}

func (d *diary) clear() {
	d.in.t.Helper()
	if err := os.Remove(filepath.Join(d.path, "words")); err != nil {
		d.in.t.Fatal(err)
	}
}

// open releases containers that wait for a gate.
func (d *diary) open(gate string) {
	d.in.t.Helper()
	if err := os.WriteFile(filepath.Join(d.path, gate), nil, 0o644); err != nil {
		d.in.t.Fatal(err)
	}
}

// writer is a container that runs a script with the commands say WORD and wait-for GATE; more are additional lines of its manifest.
func (d *diary) writer(name, script string, more ...string) string {
	script = "say() { echo $1 >> /diary/words; }; gate() { until [ -e /diary/$1 ]; do sleep 0.02; done; }; " + script
	lines := append([]string{
		"  - name: " + name, "    image: " + image, fmt.Sprintf("    command: [sh, -c, %q]", script),
		"    volumeMounts: [{name: diary, mountPath: /diary}]",
	}, more...)
	return strings.Join(lines, "\n") + "\n"
}

// server is a script that writes its name when it starts and when it receives a signal to stop.
func server(name string) string {
	return fmt.Sprintf("trap 'say %s-ends; exit 0' TERM; say %s; while :; do sleep 3600 & wait $!; done", name, name)
}

const sidecarLine = "    restartPolicy: Always"

// spoken is a startup probe that waits for a word in the diary: without it, containers after a sidecar do not wait until it has written.
func spoken(word string) string {
	return "    startupProbe: {exec: {command: [grep, -qx, " + word + ", /diary/words]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1000}"
}

func (d *diary) pod(name, init, containers string, more ...string) string {
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 10\n", name)
	if init != "" {
		text += "  initContainers:\n" + init
	}
	text += "  containers:\n" + containers
	text += fmt.Sprintf("  volumes: [{name: diary, hostPath: {path: %s, type: Directory}}]\n", d.path)
	return text + strings.Join(more, "\n") + "\n"
}

func TestInitContainersAndSidecarsKeepTheirOrder(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("order")
	in.start()
	text := d.pod("order",
		d.writer("one", "say one; gate one")+d.writer("s1", server("s1"), sidecarLine, spoken("s1"))+
			d.writer("two", "say two")+d.writer("s2", server("s2"), sidecarLine, spoken("s2")),
		d.writer("a", server("a")))
	in.put("order", text)
	d.wait("one")
	p := in.pod("order", "waits for its init container", func(p corev1.Pod) bool {
		return len(p.Status.InitContainerStatuses) == 4 && p.Status.InitContainerStatuses[0].State.Running != nil
	})
	if p.Status.Phase != corev1.PodPending || p.Status.ContainerStatuses[0].State.Waiting == nil ||
		p.Status.ContainerStatuses[0].State.Waiting.Reason != "PodInitializing" {
		t.Errorf("while it initializes: %s", brief(p))
	}
	if out, err := in.run("get", "pods"); err != nil || !strings.Contains(out, "Init:0/4") {
		t.Errorf("get pods: %v\n%s", err, out)
	}
	d.open("one")
	before := in.ready("order")
	d.wait("one s1 two s2 a")
	// One sidecar is edited: no other container is restarted.
	in.put("order", strings.Replace(text, "say s2;", "say s2b;", 1))
	after := in.pod("order", "has a new sidecar", func(p corev1.Pod) bool {
		return isReady(p) && p.Status.InitContainerStatuses[3].ContainerID != before.Status.InitContainerStatuses[3].ContainerID
	})
	d.wait("one s1 two s2 a s2-ends s2b")
	if after.UID != before.UID || containerID(after, "a") != containerID(before, "a") ||
		after.Status.InitContainerStatuses[1].ContainerID != before.Status.InitContainerStatuses[1].ContainerID {
		t.Errorf("more than the sidecar was restarted: %s", brief(after))
	}
	d.clear()
	in.drop("order")
	in.gone("order")
	d.wait("a-ends s2-ends s1-ends")
}

func TestSidecarsEndWithAPodThatCompletes(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("job")
	in.start()
	in.put("job", d.pod("job",
		d.writer("s1", server("s1"), sidecarLine)+d.writer("s2", server("s2"), sidecarLine),
		// A sidecar that does not handle signals yet would not record its end.
		d.writer("a", "until grep -qx s1 /diary/words && grep -qx s2 /diary/words; do sleep 0.02; done; say a; exit 0"), "  restartPolicy: Never"))
	p := in.pod("job", "has succeeded", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	d.wait("s1+s2 a s2-ends s1-ends")
	for _, st := range p.Status.InitContainerStatuses {
		if st.State.Terminated == nil || st.RestartCount != 0 {
			t.Errorf("sidecar %s: %+v", st.Name, st.State)
		}
	}
}

func TestAnInitContainerThatFailsHoldsThePodBack(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("fails")
	in.start()
	text := d.pod("fails", d.writer("one", "say one; exit 3"), d.writer("a", server("a")))
	in.put("fails", text)
	in.pod("fails", "crash-loops", func(p corev1.Pod) bool {
		st := p.Status.InitContainerStatuses
		return p.Status.Phase == corev1.PodPending && len(st) == 1 && st[0].RestartCount == 1 &&
			st[0].State.Waiting != nil && st[0].State.Waiting.Reason == "CrashLoopBackOff" &&
			st[0].LastTerminationState.Terminated != nil && st[0].LastTerminationState.Terminated.ExitCode == 3
	})
	d.wait("one one")
	in.put("fails", strings.Replace(text, "exit 3", "exit 0", 1))
	in.ready("fails")
	d.wait("one one one a")
	in.put("never", strings.Replace(text, "name: fails", "name: never", 1)+"  restartPolicy: Never\n")
	p := in.pod("never", "has failed", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if st := p.Status.InitContainerStatuses[0].State.Terminated; st == nil || st.ExitCode != 3 || p.Status.ContainerStatuses[0].ContainerID != "" {
		t.Errorf("failed: %s", brief(p))
	}
}

func TestInitializationSurvivesTheAgentAndIsRepeatedAfterAReboot(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("boot")
	in.start()
	in.put("boot", d.pod("boot",
		d.writer("one", "say one")+d.writer("s1", server("s1"), sidecarLine)+d.writer("two", "say two; gate two"),
		d.writer("a", server("a"))))
	d.wait("one s1+two")
	in.kill9()
	d.open("two") // the second one ends while nobody looks
	in.start()
	before := in.ready("boot")
	d.wait("one s1+two a")
	d.clear()
	in.kill9()
	in.powerCut()
	in.start()
	after := in.pod("boot", "runs again", func(p corev1.Pod) bool { return isReady(p) && containerID(p, "a") != containerID(before, "a") })
	d.wait("one s1+two+a")
	if got := d.words(); slices.Index(got, "two") > slices.Index(got, "a") {
		t.Errorf("the container did not wait for the second init container: %v", got)
	}
	for _, st := range append(after.Status.InitContainerStatuses, after.Status.ContainerStatuses...) {
		if st.RestartCount != 1 {
			t.Errorf("%s: %d restarts", st.Name, st.RestartCount)
		}
	}
}

func TestAStubbornContainerLeavesItsSidecarsTwoSeconds(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("stubborn")
	in.start()
	in.put("stubborn", strings.Replace(d.pod("stubborn",
		d.writer("s1", server("s1"), sidecarLine),
		d.writer("a", "trap '' TERM; say a; while :; do sleep 1; done")), "PeriodSeconds: 10", "PeriodSeconds: 1", 1))
	in.ready("stubborn")
	d.wait("s1+a")
	began := time.Now()
	in.drop("stubborn")
	in.gone("stubborn")
	if took := time.Since(began); took < time.Second || took > 20*time.Second {
		t.Errorf("it took %s to go", took)
	}
	d.wait("s1+a s1-ends")
}

func TestHooksRunAfterTheStartAndBeforeTheSignal(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("hooks")
	// The grace period is longer than the test: only the end of the hook lets the container stop.
	t.Cleanup(func() { d.open("post"); d.open("pre") })
	in.start()
	text := d.pod("hooks", "",
		d.writer("a", server("a"),
			"    lifecycle:",
			`      postStart: {exec: {command: [sh, -c, "echo post >> /diary/words; until [ -e /diary/post ]; do sleep 0.02; done"]}}`,
			`      preStop: {exec: {command: [sh, -c, "echo pre >> /diary/words; until [ -e /diary/pre ]; do sleep 0.02; done; echo over >> /diary/words"]}}`)+
			d.writer("b", server("b")))
	in.put("hooks", strings.Replace(text, "PeriodSeconds: 10", "PeriodSeconds: 600", 1))
	in.pod("hooks", "waits for its hook", func(p corev1.Pod) bool {
		st := p.Status.ContainerStatuses
		return len(d.words()) == 2 && len(st) == 2 && st[0].State.Running != nil && !st[0].Ready && st[1].State.Waiting != nil
	})
	in.kill9() // in the middle of the hook, which then runs again
	in.start()
	in.eventually("the hook runs again", func() error {
		if n := strings.Count(strings.Join(d.words(), " "), "post"); n != 2 {
			return fmt.Errorf("it ran %d times", n)
		}
		return nil
	})
	d.open("post")
	in.ready("hooks")
	d.wait("a+post post b") // the second container waits for the hook of the first
	d.clear()
	in.drop("hooks")
	d.wait("pre+b-ends") // the hook holds the signal back
	d.open("pre")
	in.gone("hooks")
	d.wait("pre+b-ends over a-ends")
}

func TestAPreStopHookHasNoMoreThanTheGracePeriod(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("long")
	in.start()
	text := d.pod("long", "", d.writer("a", server("a"), "    lifecycle: {preStop: {exec: {command: [sleep, \"3600\"]}}}"))
	in.put("long", strings.Replace(text, "PeriodSeconds: 10", "PeriodSeconds: 2", 1))
	in.ready("long")
	d.wait("a")
	text = d.pod("sleeps", "", d.writer("s", server("s"), "    lifecycle: {preStop: {sleep: {seconds: 1}}}"))
	in.put("sleeps", strings.Replace(text, "PeriodSeconds: 10", "PeriodSeconds: 600", 1))
	in.ready("sleeps")
	d.wait("a s")
	d.clear()
	began := time.Now()
	in.drop("sleeps")
	in.gone("sleeps")
	if took := time.Since(began); took < time.Second {
		t.Errorf("with a sleep of 1 s it took %s to go", took)
	}
	began = time.Now()
	in.drop("long")
	in.gone("long")
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("with a grace period of 2 s it took %s to go", took)
	}
	d.wait("s-ends a-ends")
}

func TestAPostStartHookThatFailsRestartsItsContainer(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("bad")
	in.start()
	in.put("bad", d.pod("bad", "", d.writer("a", server("a"), `    lifecycle: {postStart: {exec: {command: [sh, -c, "echo why; exit 4"]}}}`)))
	in.pod("bad", "has been restarted and says why", func(p corev1.Pod) bool {
		st := p.Status.ContainerStatuses
		return len(st) == 1 && st[0].RestartCount >= 1 && st[0].State.Waiting != nil && st[0].State.Waiting.Reason == "PostStartHookError" &&
			strings.Contains(st[0].State.Waiting.Message, "exit code 4") && strings.Contains(st[0].State.Waiting.Message, "why")
	})
}

func TestAnHTTPHookReachesThePod(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("http")
	in.start()
	script := `mkdir -p /www/cgi-bin; printf '#!/bin/sh\necho $QUERY_STRING-$HTTP_USER_AGENT >> /diary/words\necho; echo' > /www/cgi-bin/h; chmod +x /www/cgi-bin/h; trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait`
	in.put("http", d.pod("http", "", d.writer("a", script,
		"    ports: [{name: web, containerPort: 8080}]",
		"    lifecycle: {preStop: {httpGet: {port: web, path: \"/cgi-bin/h?bye\"}}}")))
	p := in.ready("http")
	in.eventually("the server answers", func() error {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(p.Status.PodIP, "8080"), time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	in.drop("http")
	in.gone("http")
	d.wait("bye-kube-lifecycle/1.37")
}

func TestAPodThatIsTooOldFailsForGood(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("old")
	in.start()
	text := d.pod("old", d.writer("s", server("s"), sidecarLine), d.writer("a", server("a")), "  activeDeadlineSeconds: 12")
	began := time.Now()
	in.put("old", text)
	in.ready("old")
	d.wait("s+a")
	failed := func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "DeadlineExceeded"
	}
	in.pod("old", "has failed", failed)
	if took := time.Since(began); took < 12*time.Second {
		t.Errorf("it failed after %s", took)
	}
	d.wait("s+a a-ends s-ends")
	in.kill9()
	in.powerCut()
	in.start()
	p := in.pod("old", "has failed still", failed)
	if d.wait("s+a a-ends s-ends"); p.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("after a reboot: %s", brief(p))
	}
	in.put("old", strings.Replace(text, "DeadlineSeconds: 12", "DeadlineSeconds: 3000", 1))
	in.ready("old")
	d.wait("s+a a-ends s-ends s+a")
}

func TestContainersHavePoliciesAndRulesOfTheirOwn(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("rules")
	in.start()
	in.put("rules", d.pod("rules", d.writer("one", "say one"),
		d.writer("never", "say never; exit 1", "    restartPolicy: Never")+
			d.writer("ruled", "say ruled; n=$(grep -c ruled /diary/words); [ $n = 1 ] && exit 42; exit 3",
				"    restartPolicy: Never", "    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]")+
			d.writer("a", server("a"))))
	p := in.pod("rules", "is as the rules say", func(p corev1.Pod) bool {
		st := p.Status.ContainerStatuses
		return len(st) == 3 && st[0].State.Terminated != nil && st[0].State.Terminated.ExitCode == 1 && st[0].RestartCount == 0 &&
			st[1].State.Terminated != nil && st[1].State.Terminated.ExitCode == 3 && st[1].RestartCount == 1 && st[2].State.Running != nil
	})
	if p.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s", p.Status.Phase)
	}
	in.drop("rules")
	in.gone("rules")
	d.clear()
	in.put("all", d.pod("all", d.writer("one", "say one"),
		d.writer("ruled", "say ruled; gate now; rm /diary/now; exit 42",
			"    restartPolicy: Never", "    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]")+
			d.writer("a", server("a")), "  restartPolicy: Never"))
	before := in.ready("all")
	d.wait("one ruled+a")
	d.open("now")
	after := in.pod("all", "has been restarted", func(p corev1.Pod) bool {
		return isReady(p) && p.Status.ContainerStatuses[1].RestartCount == 1 && p.Status.InitContainerStatuses[0].RestartCount == 1
	})
	d.wait("one ruled+a a-ends one ruled+a")
	last := after.Status.ContainerStatuses[1].LastTerminationState.Terminated
	if after.UID != before.UID || after.Status.PodIP != before.Status.PodIP || last == nil || last.Reason != "RestartingAllContainers" {
		t.Errorf("all restarted: %s", brief(after))
	}
}

func TestTheStopSignalOfAContainerIsSent(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("signal")
	in.start()
	in.put("signal", d.pod("signal", "",
		d.writer("a", "trap 'say term' TERM; trap 'say usr1; exit 0' USR1; say a; while :; do sleep 3600 & wait $!; done",
			"    lifecycle: {stopSignal: SIGUSR1}"), "  os: {name: linux}"))
	in.ready("signal")
	d.wait("a")
	in.drop("signal")
	in.gone("signal")
	d.wait("a usr1")
}

func TestWhatCannotBeStartedHasEnded(t *testing.T) {
	in := newInstance(t)
	in.start()
	pod := func(name, policy, command string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  restartPolicy: %s\n  terminationGracePeriodSeconds: 2\n"+
			"  containers:\n  - {name: c, image: %q, command: [%s]}\n", name, policy, image, command)
	}
	startError := func(s *corev1.ContainerStateTerminated) bool {
		return s != nil && s.Reason == "StartError" && s.ExitCode == 128 && strings.Contains(s.Message, "/no/such")
	}
	in.put("never", pod("never", "Never", "/no/such"))
	in.pod("never", "has failed", func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed && startError(p.Status.ContainerStatuses[0].State.Terminated)
	})
	in.put("always", pod("always", "Always", "/no/such"))
	in.pod("always", "waits to be started again", func(p corev1.Pod) bool {
		c := p.Status.ContainerStatuses
		return p.Status.Phase == corev1.PodRunning && c[0].RestartCount > 0 && c[0].State.Waiting != nil &&
			c[0].State.Waiting.Reason == "CrashLoopBackOff" && startError(c[0].LastTerminationState.Terminated)
	})
	in.put("job", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: job}\nspec:\n  backoffLimit: 1\n  template:\n    spec:\n      restartPolicy: Never\n"+
		fmt.Sprintf("      containers: [{name: c, image: %q, command: [/no/such]}]\n", image))
	in.eventually("the job has failed", func() error {
		all, err := in.pods()
		failed := 0
		for _, p := range all {
			if strings.HasPrefix(p.Name, "job-") && p.Status.Phase == corev1.PodFailed {
				failed++
			}
		}
		if err == nil && failed != 2 {
			err = fmt.Errorf("%d pods have failed, want 2", failed)
		}
		return err
	})
	// Running containers are kept if their replacement cannot be started.
	in.put("edited", pod("edited", "Always", "sleep, infinity"))
	before := in.ready("edited")
	in.put("edited", pod("edited", "Always", "/no/such"))
	in.eventually("the edit is tried", func() error {
		out, err := in.run("describe", "pod", "edited")
		if err == nil && !strings.Contains(out, "/no/such") {
			err = errors.New(out)
		}
		return err
	})
	if p := in.ready("edited"); containerID(p, "c") != containerID(before, "c") {
		t.Error("the old container is gone")
	}
	in.put("always", pod("always", "Always", "sleep, infinity"))
	in.ready("always")
	in.drop("never")
	in.gone("never")
}
