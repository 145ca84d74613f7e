//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testimages"
	"monopod/node"
)

// The tests of this file are cases for static pods from the end-to-end suites of kubelets; docs/field-notes.md has the mapping.

// asAnInstance returns the container IDs of a pod, which change when one is restarted.
func asAnInstance(p corev1.Pod) (ids []string) {
	for _, st := range append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...) {
		ids = append(ids, st.Name+"="+st.ContainerID)
	}
	return ids
}

func TestInitContainersAndSidecarsMayBeTakenOutWhileTheAgentIsAway(t *testing.T) {
	in := newInstance(t)
	in.start()
	diaries := map[string]*diary{}
	// pod is one that is ready by a command, within little memory.
	pod := func(name, init string) string {
		d := diaries[name]
		return d.pod(name, init, d.writer("a", server("a"),
			"    readinessProbe: {exec: {command: [grep, -qx, a, /diary/words]}, periodSeconds: 1}", "    resources: {limits: {memory: 15Mi}}"))
	}
	// again is what the diary has after the start with fewer containers: another start of all that comes after one that is taken
	// out, because it may have been what they needed; nothing for a sidecar.
	cases := map[string]struct {
		rest  func(d *diary) string
		left  int
		again string
	}{
		"init":    {func(d *diary) string { return d.writer("side", server("side"), sidecarLine, spoken("side")) }, 1, "one side a a-ends side-ends side a"},
		"sidecar": {func(d *diary) string { return d.writer("one", "say one") }, 1, "one side a side-ends"},
		"both":    {func(*diary) string { return "" }, 0, "one side a a-ends side-ends a"},
	}
	for name := range cases {
		d := in.newDiary(name)
		diaries[name] = d
		in.put(name, pod(name, d.writer("one", "say one")+d.writer("side", server("side"), sidecarLine, spoken("side"))))
	}
	for name := range cases {
		in.ready(name)
		diaries[name].wait("one side a")
	}
	in.kill9()
	for name, c := range cases {
		in.put(name, pod(name, c.rest(diaries[name])))
	}
	in.start()
	before := map[string][]string{}
	for name, c := range cases {
		diaries[name].wait(c.again)
		before[name] = asAnInstance(in.pod(name, "is ready with what is left of it", func(p corev1.Pod) bool {
			return isReady(p) && len(p.Status.InitContainerStatuses) == c.left && p.Annotations[node.AnnotationManifest] != ""
		}))
	}
	in.kill9()
	in.start()
	for name, c := range cases {
		if now := asAnInstance(in.ready(name)); !slices.Equal(now, before[name]) {
			t.Errorf("%s was %v, and is %v after another restart", name, before[name], now)
		}
		diaries[name].wait(c.again)
	}
}

func TestAFileThatComesBackRunsItsPodAgainAndOnce(t *testing.T) {
	in := newInstance(t)
	in.start()
	d := map[string]*diary{"ending": in.newDiary("ending"), "gone": in.newDiary("gone")}
	text := map[string]string{}
	for name, slow := range map[string]string{"ending": "gate end; ", "gone": ""} {
		text[name] = d[name].pod(name, "", d[name].writer("a", strings.Replace(server("a"), "say a-ends;", "say a-ends; "+slow, 1)))
		in.put(name, text[name])
	}
	uids := map[string]string{}
	for name := range text {
		p := in.ready(name)
		uids[name] = string(p.UID)
		d[name].wait("a")
		in.drop(name)
	}
	in.gone("gone")
	d["ending"].wait("a a-ends") // and it goes on ending
	for name := range text {
		in.put(name, text[name])
	}
	in.eventually("the file of the pod that ends is read", func() error {
		out, err := in.run("get", "sources")
		if err == nil && strings.Count(out, "Accepted") != 3 { // the directory and the files
			err = errors.New(out)
		}
		return err
	})
	if got := strings.Join(d["ending"].words(), " "); got != "a a-ends" {
		t.Errorf("something started beside what ends: %s", got)
	}
	d["ending"].open("end")
	check := func() {
		t.Helper()
		for name := range text {
			d[name].wait("a a-ends a")
			p := in.ready(name)
			if p.DeletionTimestamp != nil || string(p.UID) == uids[name] != (name == "ending") {
				t.Errorf("%s: uid %s, was %s: %s", name, p.UID, uids[name], brief(p))
			}
		}
		if n := in.shells("diary/words"); len(n) != len(text) {
			t.Errorf("processes %v run", n)
		}
	}
	check()
	in.kill9()
	in.start()
	check() // they stay
}

// imageOf writes an archive of an image whose variable EDITION is the tag, and returns its name.
func (in *instance) imageOf(tag string) string {
	in.t.Helper()
	name := "monopod.test/edition:" + tag
	img := testimages.Busybox(in.t, func(c *v1.Config) { c.Env = append(c.Env, "EDITION="+tag) })
	testimages.ArchiveOf(in.t, filepath.Join(in.dir, "images", tag+".tar"), img, name)
	return name
}

func TestAnEditOfADeadlineOrOfAnImageIsCarriedOut(t *testing.T) {
	in := newInstance(t)
	one, two := in.imageOf("one"), in.imageOf("two")
	in.start()
	d := in.newDiary("edits")
	script := func(word string) string { return strings.ReplaceAll(server(word), word, word+"-$EDITION") }
	pod := func(name, init, main, deadline string) string {
		text := d.pod(name, strings.Replace(d.writer("i", "say "+name+"-init-$EDITION"), image, init, 1),
			strings.Replace(d.writer("a", script(name)), image, main, 1), "  activeDeadlineSeconds: "+deadline)
		return text
	}
	before := map[string]corev1.Pod{}
	names := []string{"main", "init", "longer", "over"}
	for _, name := range names {
		in.put(name, pod(name, one, one, "1000"))
	}
	for _, name := range names {
		before[name] = in.ready(name)
	}
	in.eventually("all have started", func() error {
		if got := d.words(); len(got) != 2*len(names) {
			return fmt.Errorf("the diary says %v", got)
		}
		return nil
	})
	d.clear()
	in.put("main", pod("main", one, two, "1000"))
	d.wait("main-one-ends main-two")
	d.clear()
	in.put("init", pod("init", two, one, "1000"))
	d.wait("init-one-ends init-init-two init-one")
	d.clear()
	in.put("over", pod("over", one, one, "1"))
	over := in.pod("over", "has failed", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if over.Status.Reason != "DeadlineExceeded" {
		t.Errorf("over: %s", brief(over))
	}
	d.wait("over-one-ends")
	in.put("longer", pod("longer", one, one, "2000"))
	longer := in.pod("longer", "has the other deadline", func(p corev1.Pod) bool {
		return p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds == 2000 && p.Annotations[node.AnnotationManifest] != before["longer"].Annotations[node.AnnotationManifest]
	})
	if !isReady(longer) || !slices.Equal(asAnInstance(longer), asAnInstance(before["longer"])) {
		t.Errorf("a longer deadline restarted something: %s", brief(longer))
	}
	for _, name := range []string{"main", "init"} {
		p := in.ready(name)
		if same := p.UID == before[name].UID; same != (name == "main") {
			t.Errorf("%s: uid %s, was %s", name, p.UID, before[name].UID)
		}
	}
	d.wait("over-one-ends") // nothing else has happened
}

func TestAnEditOfAVariableFromAFileRestartsItsContainer(t *testing.T) {
	in := newInstance(t)
	in.start()
	d := in.newDiary("files")
	pod := func(key, optional string) string {
		text := d.pod("files", d.writer("i", `say init; printf "FIRST='one'\nSECOND='two'\n" > /config/app.env`, "    - {name: config, mountPath: /config}"),
			d.writer("a", strings.ReplaceAll(server("a"), " a", " a-${VALUE-none}"),
				"    env: [{name: VALUE, valueFrom: {fileKeyRef: {volumeName: config, path: app.env, key: "+key+optional+"}}}]")+
				d.writer("b", server("b")))
		text = strings.Replace(text, "volumeMounts: [{name: diary, mountPath: /diary}]\n    - {", "volumeMounts:\n    - {name: diary, mountPath: /diary}\n    - {", 1)
		return strings.Replace(text, "volumes: [", "volumes: [{name: config, emptyDir: {}}, ", 1)
	}
	in.put("files", pod("FIRST", ""))
	before := in.ready("files")
	d.wait("init a-one+b")
	in.put("files", pod("SECOND", ""))
	d.wait("init a-one+b a-one-ends a-two")
	in.put("files", pod("THIRD", ", optional: true"))
	d.wait("init a-one+b a-one-ends a-two a-two-ends a-none")
	after := in.ready("files")
	if after.UID != before.UID || containerID(after, "b") != containerID(before, "b") {
		t.Errorf("more than the container was restarted: %s", brief(after))
	}
	// A required one is missing: running pods continue.
	in.put("files", pod("THIRD", ""))
	in.eventually("what is missing is named", func() error {
		out, err := in.run("describe", "pod", "files")
		if err == nil && !strings.Contains(out, "THIRD") {
			err = errors.New(out)
		}
		return err
	})
	if now := in.ready("files"); !slices.Equal(asAnInstance(now), asAnInstance(after)) {
		t.Errorf("the pod was touched: %s", brief(now))
	}
}

func TestARestartOfTheAgentChangesNoStatus(t *testing.T) {
	in := newInstance(t)
	in.start()
	d := in.newDiary("all")
	in.put("all", d.pod("all", d.writer("one", "say one")+d.writer("side", server("side"), sidecarLine, spoken("side")), d.writer("a", server("a"),
		"    readinessProbe: {exec: {command: [grep, -qx, a, /diary/words]}, periodSeconds: 1}", "    livenessProbe: {exec: {command: [\"true\"]}, periodSeconds: 1}")))
	once := func(name, script string) {
		in.put(name, d.pod(name, d.writer("i", ":"), d.writer("a", script), "  restartPolicy: Never"))
	}
	once("succeeds", "exit 0")
	once("fails", "exit 3")
	in.put("half", d.pod("half", "", d.writer("a", "exit 0")+d.writer("b", server("b")), "  restartPolicy: OnFailure"))
	in.put("restarted", d.pod("restarted", "", d.writer("a", "[ -e /diary/once ] || { touch /diary/once; exit 5; }; "+server("c"))))
	is := map[string]func(p corev1.Pod) bool{
		"all":      isReady,
		"succeeds": func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded },
		"fails":    func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed },
		"half": func(p corev1.Pod) bool {
			return p.Status.ContainerStatuses[0].State.Terminated != nil && p.Status.ContainerStatuses[1].State.Running != nil
		},
		"restarted": func(p corev1.Pod) bool { return isReady(p) && restarts(p) == 1 },
	}
	before := map[string]corev1.Pod{}
	for name, as := range is {
		before[name] = in.pod(name, "is as it is to be", as)
	}
	in.eventually("all is on the disk", func() error {
		left, err := filepath.Glob(filepath.Join(in.state, "exits", "*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("exit records %v", left)
		}
		return err
	})
	for _, end := range []func(){in.kill9, func() {
		if err := in.signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}} {
		end()
		in.start()
		for name, was := range before {
			// The first observation must already have this state.
			p := in.pod(name, "is seen again", func(p corev1.Pod) bool { return p.UID != "" && p.Status.Phase != corev1.PodPending })
			if brief(p) != brief(was) {
				t.Errorf("%s:\nwas %s\nis  %s", name, brief(was), brief(p))
			}
		}
	}
}

// TestRemovalsAndEditsHonorTheGracePeriod removes one pod and edits another; both ignore SIGTERM.
func TestRemovalsAndEditsHonorTheGracePeriod(t *testing.T) {
	in := newInstance(t)
	in.start()
	d := in.newDiary("grace")
	const grace = 5 * time.Second
	pod := func(name, word string) string {
		text := d.pod(name, "", d.writer("a", fmt.Sprintf("trap 'say %[1]s-told' TERM; say %[1]s; while :; do sleep 0.1; done", word)))
		return strings.Replace(text, "PeriodSeconds: 10", fmt.Sprintf("PeriodSeconds: %d", grace/time.Second), 1)
	}
	in.put("removed", pod("removed", "r"))
	in.put("edited", pod("edited", "e"))
	in.ready("removed")
	edited := in.ready("edited")
	d.wait("r+e")
	began := time.Now()
	in.drop("removed")
	in.put("edited", pod("edited", "other"))
	d.wait("r+e r-told+e-told")
	ended := map[string]time.Duration{}
	in.eventually("both have been killed", func() error {
		for _, word := range []string{"r", "e"} {
			if _, ok := ended[word]; !ok && len(in.shells("say "+word+"-told")) == 0 {
				ended[word] = time.Since(began)
			}
		}
		if len(ended) < 2 {
			return fmt.Errorf("these: %v", ended)
		}
		return nil
	})
	for word, took := range ended {
		if took < grace {
			t.Errorf("%s was there for %s, with a grace period of %s", word, took, grace)
		}
	}
	d.wait("r+e r-told+e-told other")
	in.gone("removed")
	if now := in.ready("edited"); now.UID != edited.UID || containerID(now, "a") == containerID(edited, "a") {
		t.Errorf("the edited one: %s", brief(now))
	}
}

// TestTerminationsResumeWhenContainerdIsBack kills containerd while pods are terminating: one exits while containerd is down, the grace
// period of another one expires meanwhile, and a third one continues to terminate afterwards.
func TestTerminationsResumeWhenContainerdIsBack(t *testing.T) {
	c := startContainerd(t)
	in := newInstance(t, "containerRuntimeEndpoint: unix://"+c.socket)
	t.Cleanup(c.revive)
	in.start()
	none := in.census()
	d := in.newDiary("away")
	graces := map[string]int{"ends": 600, "passes": 2, "later": 600}
	gates := map[string]string{"ends": "gate end", "passes": "gate never", "later": "gate late"}
	for name, grace := range graces {
		text := d.pod(name, "", d.writer("a", fmt.Sprintf("trap 'say %[1]s-told; %[2]s; say %[1]s-ends; exit 0' TERM; say %[1]s; while :; do sleep 3600 & wait $!; done", name, gates[name])))
		in.put(name, strings.Replace(text, "PeriodSeconds: 10", fmt.Sprintf("PeriodSeconds: %d", grace), 1))
	}
	for name := range graces {
		in.ready(name)
	}
	d.wait("ends+passes+later")
	for name := range graces {
		in.drop(name)
	}
	d.wait("ends+passes+later ends-told+passes-told+later-told")
	in.eventually("it is on record that they were told", func() error { // who does not know it tells them again
		if n := strings.Count(in.log.String(), `msg="stop signal sent to container"`); n != len(graces) {
			return fmt.Errorf("%d were", n)
		}
		return nil
	})
	told := time.Now()
	c.kill9()
	d.open("end")
	d.wait("ends+passes+later ends-told+passes-told+later-told ends-ends")
	in.eventually("the grace period is over", func() error {
		if over := time.Since(told); over < 2500*time.Millisecond {
			return fmt.Errorf("%s are", over)
		}
		return nil
	})
	if left := in.shells("say passes-told"); len(left) != 1 {
		t.Fatalf("processes %v of the pod whose grace period passes while containerd is away", left)
	}
	c.start()
	back := time.Now()
	in.gone("ends")
	in.gone("passes")
	if took := time.Since(back); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	if left := in.shells("say later-told"); len(left) != 1 {
		t.Errorf("processes %v of the pod that has its time still", left)
	}
	d.open("late")
	in.gone("later")
	d.wait("ends+passes+later ends-told+passes-told+later-told ends-ends later-ends")
	in.sameCensus(none)
}

func TestAPodWhoseFileWentWhileTheAgentWasAwayLeavesNothing(t *testing.T) {
	in := newInstance(t)
	in.start()
	d := in.newDiary("away")
	in.put("stays", d.pod("stays", "", d.writer("a", server("stays"))))
	stays := in.ready("stays")
	d.wait("stays")
	in.kill9()
	records := in.records()
	in.start()
	before := in.census()
	in.put("goes", d.pod("goes", d.writer("i", "say init")+d.writer("side", server("side"), sidecarLine, spoken("side")), d.writer("a", server("a"))))
	in.ready("goes")
	d.wait("stays init side a")
	in.kill9()
	in.drop("goes")
	in.start()
	in.gone("goes")
	d.wait("stays init side a a-ends side-ends") // in order, and told to: not just killed
	in.sameCensus(before)
	if now := in.ready("stays"); !slices.Equal(asAnInstance(now), asAnInstance(stays)) {
		t.Errorf("the other one was touched: %s", brief(now))
	}
	in.kill9()
	now := in.records()
	for _, r := range []map[string]int{now, records} {
		delete(r, "leases") // those of work that a kill has cut off go with the next start
	}
	if !reflect.DeepEqual(now, records) {
		t.Errorf("containerd has %v, had %v", now, records)
	}
	in.start()
}
