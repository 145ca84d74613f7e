//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/node/events"
)

// events returns the output of `monopod events -o json` with additional arguments.
func (in *instance) events(args ...string) ([]corev1.Event, error) {
	out, err := in.run(append([]string{"events", "-o", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var list corev1.EventList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return list.Items, nil
}

// happens waits for an event that contains all the words in its type, reason, object and message.
func (in *instance) happens(args []string, words ...string) corev1.Event {
	in.t.Helper()
	var found corev1.Event
	in.eventually(fmt.Sprintf("%v tells of %q", args, words), func() error {
		all, err := in.events(args...)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(e corev1.Event) bool {
			text := eventText(e)
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
		})
		if i < 0 {
			return errors.New(eventTexts(all))
		}
		found = all[i]
		return nil
	})
	return found
}

func eventText(e corev1.Event) string {
	return fmt.Sprintf("%s %s %s %s %s", e.Type, e.Reason, e.InvolvedObject.Name, e.InvolvedObject.FieldPath, e.Message)
}

func eventTexts(all []corev1.Event) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%s x%d\n", eventText(e), e.Count)
	}
	return b.String()
}

// reasons returns the reasons of a pod's events in order.
func (in *instance) reasons(pod string) string {
	in.t.Helper()
	all, err := in.events(pod)
	if err != nil {
		in.t.Fatal(err)
	}
	var out []string
	for _, e := range all {
		out = append(out, e.Reason)
	}
	return strings.Join(out, " ")
}

func (in *instance) record() string { return filepath.Join(in.dir, "root", "events") }

func TestEventsTellTheLifeOfRealPods(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("good", sleeper("good", "echo start"))
	p := in.ready("good")
	if got := in.reasons("good"); got != "Pulled Created Started" {
		t.Errorf("a good pod: %s", got)
	}
	started := in.happens([]string{"good"}, "Normal Started good spec.containers{c} Container started")
	if started.InvolvedObject.UID != p.UID || started.Source.Component != "monopod" || started.Source.Host != "e2e" || started.Count != 1 {
		t.Errorf("event: %+v", started)
	}

	in.put("crash", strings.Replace(sleeper("crash", "exit 3"), "spec:\n", "spec:\n  restartPolicy: Always\n", 1))
	in.happens([]string{"crash"}, "Warning Exited crash spec.containers{c} Container exited with code 3 (Error)")
	in.happens([]string{"crash"}, "Warning BackOff crash spec.containers{c} Back-off restarting failed container c in pod crash_default(")

	in.put("nopull", strings.Replace(sleeper("nopull", "echo"), image, "127.0.0.1:1/none:1", 1))
	failed := in.happens([]string{"nopull"}, "Warning Failed nopull spec.containers{c}", `Failed to pull image "127.0.0.1:1/none:1": `, "connection refused")
	in.happens([]string{"nopull"}, `Normal BackOff nopull spec.containers{c} Back-off pulling image "127.0.0.1:1/none:1"`)
	in.happens([]string{"nopull"}, `Normal Pulling nopull spec.containers{c} Pulling image "127.0.0.1:1/none:1"`)
	in.eventually("it is tried again, which raises the count", func() error {
		if e := in.happens([]string{"nopull"}, failed.Message); e.Count < 2 || e.FirstTimestamp != failed.FirstTimestamp {
			return errors.New(eventTexts([]corev1.Event{e}))
		}
		return nil
	})

	in.put("sick", sleeper("sick", "echo", "    readinessProbe: {exec: {command: [sh, -c, echo not yet; exit 1]}, periodSeconds: 1}"))
	in.happens([]string{"sick"}, "Warning Unhealthy sick spec.containers{c} Readiness probe failed: not yet")
	in.put("lost", sleeper("lost", "echo", "    envFrom: [{configMapRef: {name: nobody}}]"))
	in.happens([]string{"lost"}, "Warning Failed lost spec.containers{c} Error: ", "nobody")

	in.put("good", sleeper("good", "echo again"))
	in.happens([]string{"good"}, "Normal Killing good spec.containers{c} Container c definition changed, will be restarted")
	in.put("bad", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: [{name: c, imag: x}]}\n")
	in.happens(nil, "Warning InputRefused "+filepath.Join(in.manifests, "bad.yaml"))
	in.eventually("the new container has started: one that has not is not stopped", func() error {
		if e := in.happens([]string{"good"}, "Normal Started good spec.containers{c} Container started"); e.Count < 2 {
			return errors.New(eventTexts([]corev1.Event{e}))
		}
		return nil
	})
	in.drop("good")
	in.gone("good")
	in.happens([]string{"good"}, "Normal Killing good spec.containers{c} Stopping container c (pod removed)")

	out, err := in.run("describe", "pod", "crash")
	if err != nil || !strings.Contains(out[strings.Index(out, "\nEvents:"):], "Back-off restarting failed container c") {
		t.Errorf("describe: %v\n%s", err, out)
	}
	in.happens(nil, "Normal Starting e2e  Starting monopod")
	if out, err = in.run("events"); err == nil {
		t.Log("\n" + out)
	}
}

// TestEventsOutliveTheAgent kills it during a crash loop. Events that were already written are available while it is down and afterwards.
func TestEventsOutliveTheAgent(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("crash", sleeper("crash", "exit 3"))
	in.happens([]string{"crash"}, "BackOff")
	onDisk := []string{"crash", "--record", in.record()}
	in.happens(onDisk, "BackOff") // a second later it is on disk
	in.kill9()
	before := in.happens(onDisk, "Exited")
	in.start()
	in.eventually("the next exit raises the count that was on disk", func() error {
		if e := in.happens([]string{"crash"}, "Exited"); e.Count <= before.Count || e.Name != before.Name || e.FirstTimestamp != before.FirstTimestamp {
			return errors.New(eventTexts([]corev1.Event{e}))
		}
		return nil
	})
	if e := in.happens(nil, "Starting monopod"); e.Count != 2 {
		t.Errorf("%+v", e)
	}
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	after := in.happens(onDisk, "Exited") // the end writes what is left
	if after.Count <= before.Count {
		t.Errorf("%d on disk, before the second start %d", after.Count, before.Count)
	}
	t.Setenv("MONOPOD_CONFIG", in.config)
	in.happens(nil, "Normal Stopping e2e  Stopping monopod; the pods keep running") // from disk, without being told where
}

func TestEventsSurviveAFullDisk(t *testing.T) {
	in := newInstance(t)
	if err := os.MkdirAll(in.record(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("monopod-e2e", in.record(), "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(in.record(), syscall.MNT_DETACH); err != nil { // the agent has the file open
			t.Errorf("unmount: %v", err)
		}
	})
	in.start()
	in.put("first", sleeper("first", "echo"))
	in.ready("first")
	in.happens([]string{"first", "--record", in.record()}, "Started")

	filler := filepath.Join(in.record(), "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 512); err == nil; {
		_, err = f.Write(block)
	}
	_ = f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	var names []string
	for i := range 3 {
		name := fmt.Sprintf("p%d", i)
		in.put(name, sleeper(name, "exit 3"))
		names = append(names, name)
	}
	for _, name := range names {
		in.happens([]string{name}, "BackOff")
	}
	in.eventually("the log says that nothing can be written", func() error {
		if !in.log.contains("no space left on device") {
			return errors.New("not a word")
		}
		return nil
	})
	in.ready("first")
	if all, err := events.Read(in.record(), events.Filter{Name: "first"}); err != nil || len(all) < 3 {
		t.Errorf("what had been written: %v %v", eventTexts(all), err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		in.happens([]string{name, "--record", in.record()}, "BackOff")
	}
	in.kill9()
	for _, name := range append(names, "first") {
		in.happens([]string{name, "--record", in.record()}, "Started")
	}
	in.start()
	in.happens([]string{"first"}, "Started")
}

func TestEventsTellThatContainerdIsAway(t *testing.T) {
	d := startContainerd(t)
	in := newInstance(t, "containerRuntimeEndpoint: unix://"+d.socket)
	in.start()
	in.put("one", sleeper("one", "echo"))
	in.ready("one")
	d.kill9()
	in.happens(nil, "Warning ContainerdUnreachable e2e")
	d.start()
	in.happens(nil, "Normal ContainerdReachable e2e  containerd responds again")
	in.ready("one")
	if e := in.happens([]string{"one"}, "Started"); e.Count != 1 {
		t.Errorf("it was started %d times", e.Count)
	}
}

// TestRebootKeepsEventsInTheirOrder: the machine boots in 1970, like machines without a battery-backed clock.
func TestRebootKeepsEventsInTheirOrder(t *testing.T) {
	in, again := rebooting(t)
	onDisk := []string{"--record", in.record()}
	if !again {
		in.start()
		in.put("crash", sleeper("crash", "exit 3"))
		in.happens(append(onDisk, "crash"), "Warning BackOff crash")
		in.kill9()
		return
	}
	before, err := in.events(onDisk...)
	if err != nil || len(before) < 5 {
		t.Fatalf("after the reboot there is on disk: %v\n%s", err, eventTexts(before))
	}
	setClock(t, time.Unix(3600, 0))
	in.start()
	in.happens(nil, "Warning Rebooted e2e  Node e2e has been rebooted, boot id: ")
	in.happens([]string{"crash"}, "Warning Exited crash")
	var all []corev1.Event
	in.eventually("the crash of this boot is the latest", func() error {
		all, err = in.events("crash")
		if last := all[len(all)-1]; err == nil && last.Annotations[events.AnnotationBootID] == before[0].Annotations[events.AnnotationBootID] {
			err = errors.New(eventTexts(all))
		}
		return err
	})
	if e := all[len(all)-1]; e.LastTimestamp.Year() != 1970 || !e.LastTimestamp.Before(&before[0].FirstTimestamp) {
		t.Errorf("it was at %v, an hour after 1970 began", e.LastTimestamp)
	}
	everything, err := in.events()
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range before {
		if got := everything[i]; got.Name != e.Name || got.Count != e.Count || !got.LastTimestamp.Equal(&e.LastTimestamp) {
			t.Errorf("event %d is %s, before the start it was %s", i, eventTexts([]corev1.Event{got}), eventTexts([]corev1.Event{e}))
		}
	}
}

// setClock sets the clock of the machine until the test ends: only for machines dedicated to tests.
func setClock(t *testing.T, to time.Time) {
	t.Helper()
	was := time.Now()
	set := func(at time.Time) {
		tv := unix.NsecToTimeval(at.UnixNano())
		if err := unix.Settimeofday(&tv); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(was.Add(time.Since(was))) })
	set(to)
}
