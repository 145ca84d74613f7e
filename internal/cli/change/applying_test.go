package change

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/podtable"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
	"monopod/runner/runtimetest"
)

const configMapYAML = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {k: %s}\n"

// applied returns the names of the stored files.
func applied(d *clitest.Daemon) string {
	d.T.Helper()
	paths, err := filepath.Glob(d.Path("root", "applied", "*"))
	if err != nil {
		d.T.Fatal(err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return strings.Join(names, " ")
}

func TestApplyStoresWhatIsNewAndSaysSo(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	dir := filepath.Dir(d.File("set/web.yaml", "# the web\n"+daemontest.PodYAML("web", runtimetest.ScriptServe)))
	d.File("set/app.yaml", fmt.Sprintf(configMapYAML, "v1"))
	d.File("set/README", "not a manifest\n")
	d.Says(0, "configmap/app created (dry run)\npod/web created (dry run)\n", "", "apply", "-f", dir, "--dry-run")
	if got := applied(d); got != "" {
		t.Errorf("a dry run stored %s", got)
	}
	d.Says(0, "configmap/app created\npod/web created\n", "", "apply", "-f", dir, "--wait")
	d.Says(0, "configmap/app unchanged\npod/web unchanged\n", "", "apply", "-f", dir)
	if got := applied(d); got != "configmap.default.app.yaml pod.default.web.yaml" {
		t.Errorf("stored: %s", got)
	}
	d.Says(0, "configmap/app configured\n", "", "apply", "-f", d.File("other.yaml", fmt.Sprintf(configMapYAML, "v2")))
	// The same content in another notation is not a change.
	d.Says(0, "configmap/app unchanged\n", "", "apply", "-f", d.File("flow.yaml", `{"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v2"}, "metadata": {"name": "app"}}`))
	web := d.Pod("web")
	if source := web.Annotations[node.AnnotationSource]; source != d.Path("root", "applied", "pod.default.web.yaml")+":1" {
		t.Errorf("source %q", source)
	}
	d.End()
	d.Start() // what was applied survives
	d.Shows("Running", "get", "pod", "web")
	if again := d.Pod("web"); again.UID != web.UID {
		t.Errorf("another pod after a restart of the agent: %s, was %s", again.UID, web.UID)
	}
	d.Says(0, "pod/web deleted (dry run)\n", "", "delete", "pod", "web", "--dry-run")
	d.Says(0, "pod/web deleted\n", "", "delete", "pod", "web")
	d.Says(1, "", "monopod: pod \"web\" not found in namespace \"default\"\n", "get", "pod", "web")
	d.Says(1, "configmap/app deleted\n", "monopod: pod/web not found among applied objects\n", "delete", "-f", dir)
	d.Says(0, "", "", "delete", "cm/app", "--ignore-not-found")
	if got := applied(d); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestARefusedDocumentNamesItsPlaceAndNothingIsStored(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "appliedSecurity: baseline")
	d.Start()
	bad := d.File("bad.yaml", fmt.Sprintf(configMapYAML, "v1")+"---\n"+strings.Replace(daemontest.PodYAML("web", "x"), "image:", "imag:", 1))
	d.Says(1, "", `$DIR/files/bad.yaml:11:15: pod default/web: spec.containers[0].imag: unknown field; did you mean "image"?`+"\n", "apply", "-f", bad)
	privileged := d.File("privileged.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  hostNetwork: true\n  containers: [{name: c, image: i}]\n")
	if r := d.Cmd("apply", "-f", privileged); r.Code != 1 || !strings.Contains(r.Stderr, "privileged.yaml:4") || !strings.Contains(r.Stderr, "baseline") {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
	one, two := d.File("one.yaml", daemontest.PodYAML("web", "x")), d.File("two.yaml", daemontest.PodYAML("web", "y"))
	if r := d.Cmd("apply", "-f", one, "-f", two); r.Code != 1 || !strings.Contains(r.Stderr, "two.yaml:1: pod default/web: metadata.name: is already defined at "+one+":1") {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
	cm1, cm2 := d.File("cm1.yaml", fmt.Sprintf(configMapYAML, "x")), d.File("cm2.yaml", fmt.Sprintf(configMapYAML, "z"))
	if r := d.Cmd("apply", "-f", cm1, "-f", cm2); r.Code != 1 || !strings.Contains(r.Stderr, "cm2.yaml:1: configmap default/app: is already defined at "+cm1+":1") {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
	d.Says(1, "", "monopod: open $DIR/files/none.yaml: no such file or directory\n", "apply", "-f", d.Path("files", "none.yaml"))
	d.Says(2, "", "monopod: no manifests; use -f FILE, -f DIR or -f - for standard input\nsee `monopod apply --help`\n", "apply")
	if got := applied(d); got != "" {
		t.Errorf("stored: %s", got)
	}
}

// Each request is one change, and none waits for an object that another one has replaced.
func TestClientsThatApplyAtTheSameTimeComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	const clients, rounds = 4, 5
	set := func(version string) string {
		var b strings.Builder
		for i := range 3 {
			fmt.Fprintf(&b, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: part-%d}\ndata: {k: %s}\n---\n", i, version)
		}
		return b.String()
	}
	var g errgroup.Group
	for c := range clients {
		path := d.Path("files", fmt.Sprint("set-", c, ".yaml"))
		g.Go(func() error {
			for i := range rounds {
				text := set(fmt.Sprintf("of-%d-%d", c, i))
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					return err
				}
				if r := d.Cmd("apply", "-f", path); r.Code != 0 || strings.Count(r.Stdout, "configmap/part-") != 3 {
					return fmt.Errorf("%+v", r)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var first string
	for i := range 3 {
		text, err := os.ReadFile(d.Path("root", "applied", fmt.Sprintf("configmap.default.part-%d.yaml", i)))
		if err != nil {
			t.Fatal(err)
		}
		_, version, _ := strings.Cut(string(text), "k: of-")
		version, _, _ = strings.Cut(version, "\n")
		if first == "" {
			first = version
		}
		if version != first || version == "" {
			t.Errorf("part %d is of %q, part 0 of %q", i, version, first)
		}
	}
}

func TestImmutableObjectsAreNotConfigured(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	text := fmt.Sprintf(configMapYAML, "v1") + "immutable: true\n"
	d.Says(0, "configmap/app created\n", "", "apply", "-f", d.File("cm.yaml", text))
	d.Says(1, "", "$DIR/files/cm.yaml:1: configmap default/app: it is immutable and cannot be changed; rename the changed one, or delete it first\n",
		"apply", "-f", d.File("cm.yaml", strings.Replace(text, "k: v1", "k: v2", 1)))
	d.Says(0, "configmap/app deleted\n", "", "delete", "configmap", "app")
	d.Says(0, "configmap/app created\n", "", "apply", "-f", d.Path("files", "cm.yaml"))
}

func TestApplyReadsTheStandardInput(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	p := d.Program()
	out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
	p.Stdin, p.Stdout, p.Stderr = strings.NewReader(daemontest.PodYAML("web", runtimetest.ScriptServe)+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n"), out, errs
	if code := commands(t.Context(), p, []string{"apply", "-f", "-", "-o", "name"}); code != 0 || out.String() != "pod/web\n" || !strings.Contains(errs.String(), "kind Namespace is ignored") {
		t.Errorf("code %d: %s %s", code, out, errs)
	}
}

func TestWhatAFileDefinesCanNeitherBeDeletedNorOverridden(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Put("jobs.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many}\nspec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: c, image: i, command: [sh, -c, \""+runtimetest.ScriptServe+"\"]}]}\n")
	d.Start()
	d.Shows("Running", "get", "pod", "web")
	d.Shows("Running", "get", "pod", "many-0")
	const place = "$DIR/manifests/web.yaml:1"
	d.Says(1, "", "Pod default/web is defined in "+place+"; remove it there\n", "delete", "pod", "web")
	d.Says(1, "", "Deployment default/many is defined in $DIR/manifests/jobs.yaml:1; remove it there\n", "delete", "deploy", "many")
	d.Says(1, "", "Pod default/many-0 is a pod of Deployment many, defined in $DIR/manifests/jobs.yaml:1; remove it there\n", "delete", "pod", "many-0")
	other := d.File("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptStubborn))
	d.Says(1, "", "$DIR/files/web.yaml:1: pod default/web: is defined in "+place+" already, which cannot be overridden; change it there, or remove it there first\n", "apply", "-f", other)
	d.Says(1, "", "$DIR/files/many.yaml:1: pod default/many-0: has the name of a pod of Deployment many, defined in $DIR/manifests/jobs.yaml:1; rename it\n",
		"apply", "-f", d.File("many.yaml", daemontest.PodYAML("many-0", runtimetest.ScriptServe)))
	if got := applied(d); got != "" {
		t.Errorf("stored: %s", got)
	}
}

// A file that has been invalid since the start of the agent still keeps its pods.
func TestWhatAFileSaidBeforeItBrokeCanNeitherBeDeletedNorOverridden(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	text := daemontest.PodYAML("web", runtimetest.ScriptServe)
	d.Put("web.yaml", text)
	d.Start()
	d.Shows("Running", "get", "pod", "web")
	d.End()
	d.Put("web.yaml", "broken\n")
	d.Start()
	d.Shows("Running", "get", "pod", "web")
	const owner = "defined in $DIR/manifests/web.yaml:1 (not read since monopod started)"
	d.Says(1, "", "Pod default/web is "+owner+"; remove it there\n", "delete", "pod", "web")
	d.Says(1, "", "$DIR/files/web.yaml:1: pod default/web: is "+owner+" already, which cannot be overridden; change it there, or remove it there first\n",
		"apply", "-f", d.File("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptStubborn)))
	d.Says(0, "pod/web created\n", "warning: pod/web is "+owner+" too, which takes precedence until it is removed there\n", "apply", "-f", d.File("web.yaml", text))
	if err := os.Remove(d.Path("manifests", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	d.PodIs("web", "that of the stored file", func(p *corev1.Pod) error {
		if got := p.Annotations[node.AnnotationSource]; !strings.Contains(got, "/root/applied/") {
			return errors.New(got)
		}
		return nil
	})
	d.Says(0, "pod/web deleted\n", "", "delete", "pod", "web")
}

// A pod moves from its file to the applied objects and back. It stays the same pod.
func TestAPodMovesBetweenSourcesWithoutARestart(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Prog.Machine.Aside = time.Hour // however long it takes to apply it
	text := daemontest.PodYAML("web", runtimetest.ScriptServe)
	d.Put("web.yaml", text)
	d.Start()
	d.Shows("Running", "get", "pod", "web")
	before := d.Pod("web")
	stored := d.Path("root", "applied", "pod.default.web.yaml")
	manifest := d.Path("manifests", "web.yaml")
	at := func(file string) {
		t.Helper()
		d.PodIs("web", "that of "+file, func(p *corev1.Pod) error {
			if got := p.Annotations[node.AnnotationSource]; got != file+":1" {
				return errors.New(got)
			}
			return nil
		})
	}
	// Nothing waits for it: when a command returns, what it applied or deleted has been read. The other source may lose the pod at once.
	conflict := func(want bool) {
		t.Helper()
		r := d.Cmd("get", "sources")
		if strings.Contains(r.Stdout, "Conflict") != want || strings.Contains(r.Stdout, "is already defined in "+manifest+":1") != want {
			t.Errorf("a conflict is reported: want %v: %s", want, r.Stdout)
		}
	}
	d.Says(0, "pod/web created\n", "warning: pod/web is defined in $DIR/manifests/web.yaml:1 too, which takes precedence until it is removed there\n", "apply", "-f", d.File("web.yaml", text))
	conflict(true)
	at(manifest)
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	at(stored)
	conflict(false)
	d.Put("web.yaml", text)
	at(manifest)
	conflict(true)
	d.Says(0, "pod/web deleted\n", "warning: pod/web continues to run: it is defined in $DIR/manifests/web.yaml:1 too\n", "delete", "pod", "web")
	conflict(false)
	// The reverse: it disappears first, within the grace period of its source. Everything but the request was prepared before.
	p := d.Program()
	in, input := io.Pipe()
	out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
	p.Stdin, p.Stdout, p.Stderr = in, out, errs
	code := make(chan int, 1)
	go func() {
		defer in.Close()
		code <- commands(t.Context(), p, []string{"apply", "-f", "-"})
	}()
	if _, err := input.Write([]byte(text[:1])); err != nil { // it reads
		t.Fatal(err)
	}
	if err := os.Rename(manifest, manifest+".off"); err != nil {
		t.Fatal(err)
	}
	if _, err := input.Write([]byte(text[1:])); err != nil {
		t.Fatal(err)
	}
	_ = input.Close()
	if got := <-code; got != 0 || out.String() != "pod/web created\n" || errs.String() != "warning: pod/web is defined in "+manifest+":1 too, which takes precedence until it is removed there\n" {
		t.Errorf("apply: code %d: %s%s", got, out, errs)
	}
	conflict(true)
	d.Put("web.yaml", daemontest.PodYAML("other", runtimetest.ScriptServe)) // it does not come again
	at(stored)
	after := d.Pod("web")
	if a, b := before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID; a != b || before.UID != after.UID {
		t.Errorf("the pod was replaced: %s %s, was %s %s", after.UID, b, before.UID, a)
	}
}

func TestSourceOrderDecidesWhoOverridesWhom(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "sourceOrder: [applied]")
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Running", "get", "pod", "web")
	d.Says(0, "pod/web created\n", "", "apply", "--wait", "-f", d.File("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptStubborn)))
	if got := d.Pod("web").Spec.Containers[0].Command[2]; got != runtimetest.ScriptStubborn {
		t.Errorf("it runs %q", got)
	}
	d.Shows("is already defined in "+d.Path("root", "applied", "pod.default.web.yaml"), "get", "sources")
	if r := d.Cmd("config"); !strings.Contains(r.Stdout, "sourceOrder") {
		t.Error(r.Stdout)
	}
}

// While the agent was down nothing has changed: whichever source is read first, nothing may change.
func TestAConflictDoesNotFlapWhenTheAgentStarts(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	d.Says(0, "pod/web created\n", "", "apply", "--wait", "-f", d.File("web.yaml", strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "app:1", "app:2", 1)))
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.PodIs("web", "that of the file", func(w *corev1.Pod) error {
		if w.Spec.Containers[0].Image != "example.com/app:1" || !strings.HasSuffix(w.Annotations[node.AnnotationSource], "manifests/web.yaml:1") || len(w.Status.ContainerStatuses) == 0 || w.Status.ContainerStatuses[0].State.Running == nil {
			return fmt.Errorf("%+v", w.Status)
		}
		return nil
	})
	id := ""
	d.Eventually("the old one is gone", func() error {
		s := d.Fake.State(manifests.Key{Namespace: "default", Name: "web"})
		if len(s.Containers) != 1 || s.Containers[0].Image != "example.com/app:1" {
			return fmt.Errorf("containers %+v", s.Containers)
		}
		id = s.Containers[0].ID
		return nil
	})
	for range 5 {
		d.End()
		d.Start()
		d.Shows("Running", "get", "pod", "web")
		d.Shows("Conflict", "get", "sources")
	}
	if s := d.Fake.State(manifests.Key{Namespace: "default", Name: "web"}); len(s.Containers) != 1 || s.Containers[0].ID != id {
		t.Errorf("the container was replaced: %+v, was %s", s.Containers, id)
	}
}

func TestWaitForPods(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	never := strings.Replace(daemontest.PodYAML("bad", runtimetest.ScriptFail), "spec:\n", "spec:\n  restartPolicy: Never\n", 1)
	never = strings.Replace(never, "image:", "readinessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: 3600}, image:", 1) // not Ready before it fails
	once := strings.Replace(daemontest.PodYAML("once", runtimetest.ScriptSucceed), "spec:\n", "spec:\n  restartPolicy: Never\n", 1)
	done := make(chan clitest.Result, 1)
	go func() { done <- d.Cmd("wait", "--for=condition=Ready", "pod/web", "--timeout=1m") }() // it does not exist yet
	d.Says(0, "pod/web created\n", "", "apply", "-f", d.File("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe)))
	if r := <-done; r.Code != 0 || r.Stdout != "pod/web condition met\n" {
		t.Errorf("%+v", r)
	}
	d.Says(0, "pod/once created\n", "", "apply", "--wait", "-f", d.File("once.yaml", once))
	d.Says(0, "pod/once condition met\n", "", "wait", "--for=phase=succeeded", "pod", "once")
	d.Says(1, "", "monopod: pod default/once has terminated: it is Succeeded\n", "wait", "--for=condition=Ready", "once")
	d.Says(0, "pod/once condition met\n", "", "wait", "--for=condition=Ready=false", "default/once")
	d.Says(1, "pod/bad created\n", "monopod: pod default/bad has terminated: it is Failed: container a: exited with 3 (Error), not restarted by restart policy Never\n", "apply", "--wait", "-f", d.File("bad.yaml", never))
	d.SaysAtLast(2, "", "monopod: timed out after 200ms waiting for condition Ready of pod default/nope: it does not exist\n", "wait", "--timeout=200ms", "nope")
	d.SaysAtLast(2, "", "monopod: timed out after 200ms waiting for deletion of pod default/web: it is Running\n", "wait", "--for=delete", "--timeout=200ms", "web")
	d.Says(0, "pod/nope condition met\n", "", "wait", "--for=delete", "nope")
	go func() { done <- d.Cmd("wait", "--for=delete", "pod", "web", "bad", "--timeout=1m") }()
	d.Says(0, "pod/web deleted\npod/bad deleted\n", "", "delete", "pod", "web", "bad")
	if r := <-done; r.Code != 0 || strings.Count(r.Stdout, "condition met") != 2 {
		t.Errorf("%+v", r)
	}
	for _, wrong := range [][]string{{"wait"}, {"wait", "--for=ready", "x"}, {"wait", "--for=phase=Done", "x"}, {"wait", "--for=condition=", "x"}, {"wait", "-l", "a=b", "x"}, {"wait", "-l", "=", "pod"}, {"wait", "-A", "web"}, {"delete"}, {"delete", "pod"}, {"delete", "pdo", "x"}, {"delete", "web"}, {"delete", "sc", "a/b"}} {
		if r := d.Cmd(wrong...); r.Code != program.ExitUsage {
			t.Errorf("%v: code %d: %s", wrong, r.Code, r.Stderr)
		}
	}
}

// TestWaitForADaemonSetForOtherMachines: it wants no pods here, so that it is Ready.
func TestWaitForADaemonSetForOtherMachines(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	set := func(name, arch string) string {
		return "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: " + name + "}\nspec:\n  selector: {matchLabels: {a: " + name + "}}\n  template:\n    metadata: {labels: {a: " + name + "}}\n" +
			"    spec: {nodeSelector: {kubernetes.io/arch: " + arch + "}, containers: [{name: c, image: i, command: [sh, -c, \"" + runtimetest.ScriptServe + "\"]}]}\n"
	}
	for name, c := range map[string]struct{ arch, status string }{"here": {runtime.GOARCH, "1 1 1 1 1"}, "elsewhere": {"pdp11", "0 0 0 0 0"}} {
		if r := d.Cmd("apply", "-f", d.File(name+".yaml", set(name, c.arch))); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
		d.Says(0, "daemonset/"+name+" condition met\n", "", "wait", "--for=condition=Ready", "ds/"+name, "--timeout=10s")
		if r := d.Cmd("get", "ds", name); !strings.Contains(strings.Join(strings.Fields(r.Stdout), " "), " "+name+" "+c.status+" ") {
			t.Errorf("%+v", r)
		}
	}
}

// TestWaitForWhatCannotBeIsRefusedAtOnce is a regression test: it waited until its timeout.
func TestWaitForWhatCannotBeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"svc/x", "--for=condition=ready"}, "a Service has no condition ready; wait for delete"},
		{[]string{"svc", "x"}, "a Service has no condition Ready; wait for delete"},
		{[]string{"cj/x"}, "a CronJob has no condition Ready; wait for delete"},
		{[]string{"cm", "-l", "a=b"}, "a ConfigMap has no condition Ready; wait for delete"},
		{[]string{"job/x"}, "a Job has no condition Ready; wait for condition=Complete, condition=Failed or delete"},
		{[]string{"deploy/x", "--for=condition=progressing"}, "a Deployment has no condition progressing; wait for condition=Available, condition=Ready or delete"},
		{[]string{"deploy/x", "--for=phase=Running"}, "a Deployment has no phase; wait for condition=Available"},
	} {
		r := d.Cmd(append([]string{"wait", "--timeout=1m"}, c.args...)...)
		if r.Code != program.ExitUsage || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("wait %q: code %d: %s", c.args, r.Code, r.Stderr)
		}
	}
}

// TestWaitForLabels waits for all pods with labels, and for objects of another kind.
func TestWaitForLabels(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	withLabel := func(name string) string {
		return strings.Replace(daemontest.PodYAML(name, runtimetest.ScriptServe), "labels: {app: "+name+"}", "labels: {app: web}", 1)
	}
	d.Says(0, "pod/a created\npod/b created\npod/c created\n", "", "apply", "-f", d.File("all.yaml", withLabel("a")+"---\n"+withLabel("b")+"---\n"+daemontest.PodYAML("c", runtimetest.ScriptServe)))
	for _, args := range [][]string{{"-l", "app=web"}, {"pods", "-l", "app=web", "-A"}, {"-l", "app in (web)", "-n", "default", "--for=phase=Running"}} {
		r := d.Cmd(append([]string{"wait", "--timeout=1m"}, args...)...)
		if got := strings.Split(strings.TrimSpace(r.Stdout), "\n"); r.Code != 0 || len(got) != 2 || !strings.Contains(r.Stdout, "pod/a condition met\n") || !strings.Contains(r.Stdout, "pod/b condition met\n") {
			t.Errorf("wait %q: %+v", args, r)
		}
	}
	d.Says(program.ExitError, "", "monopod: no pod has the labels app=none\n", "wait", "-l", "app=none")
	d.Says(program.ExitError, "", "monopod: no pod has the labels app=web\n", "wait", "-l", "app=web", "-n", "other")
	d.Says(0, "", "", "wait", "-l", "app=none", "--for=delete")
	d.Says(0, "", "", "wait", "svc", "-l", "app=web", "--for=delete")
	d.Says(0, "pod/a condition met\n", "", "wait", "pod", "a", "--timeout=1m")
}

// deadline is a context whose deadline passes when the channel is closed.
type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestWaitForWhatDoesNotExistSaysSoWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	ctx, requests := deadline{t.Context(), make(chan struct{})}, atomic.Int32{}
	socket := clitest.ServeOn(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 2 { // the answer to the first has been read
			close(ctx.passed)
		}
		_, _ = io.WriteString(w, `{"items":[]}`)
	}))
	p := newDaemon(t).Program()
	errs := &daemontest.SyncBuffer{}
	p.Stderr = errs
	code := commands(ctx, p, []string{"wait", "deploy", "none", "--for=condition=Available", "--timeout=0", "--socket", socket})
	if want := "monopod: timed out waiting for condition Available of deployment default/none: it does not exist\n"; code != program.ExitTimeout || errs.String() != want {
		t.Errorf("code %d: %s", code, errs)
	}
}

func TestApplyOfAURLSaysWhatToDoInstead(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	r := d.Cmd("apply", "-f", "https://example.com/web.yaml")
	if r.Code == 0 || !strings.Contains(r.Stderr, "https://example.com/web.yaml: URLs are not fetched here; use curl -fsSL URL | monopod") || applied(d) != "" {
		t.Errorf("%+v; applied is %q", r, applied(d))
	}
}

// Before the initial list of pods is complete, a missing pod is not reported.
func TestWaitDoesNotSayThatAPodIsNotThereBeforeItKnows(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	if err := os.MkdirAll(d.Path("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := node.Listen(d.Path("run", "monopod.sock"))
	if err != nil {
		t.Fatal(err)
	}
	mute := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}
	done := make(chan error, 1)
	go func() { done <- mute.Serve(l) }()
	d.Says(2, "", "monopod: timed out after 50ms waiting for condition Ready of pod default/web: the daemon has not reported it yet\n", "wait", "--timeout=50ms", "web")
	if err := mute.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

func TestWaitGoesOnOverARestartOfTheDaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	if err := os.MkdirAll(d.Path("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := node.Listen(d.Path("run", "monopod.sock"))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	first := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			fmt.Fprintln(w, `{"type": "ADDED", "object": {"metadata": {"namespace": "default", "name": "web"}}}`)
			return // it ends
		}
		fmt.Fprintln(w, `{"type": "ADDED", "object": {"metadata": {"namespace": "default", "name": "web"}, "status": {"phase": "Running"}}}`)
	})}
	done := make(chan error, 1)
	go func() { done <- first.Serve(l) }()
	d.Says(0, "pod/web condition met\n", "", "wait", "--for=phase=Running", "web", "--timeout=1m")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) || asked != 2 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	// No daemon ran at startup of the command: this is not a restart.
	d.Says(1, "", "monopod: $DIR/run/monopod.sock does not exist; is monopod running? Start it with `monopod run`, or set its socket with --socket or MONOPOD_SOCKET\n", "wait", "web")
}

// A pod that is Ready with the old manifest is not Ready with the applied one.
func TestApplyWaitIsNotSatisfiedByTheOldPod(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	d.Says(0, "pod/web created\n", "", "apply", "--wait", "-f", d.File("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptSlowStop)))
	for i := range 3 {
		text := strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptSlowStop), "example.com/app:1", fmt.Sprint("example.com/app:", i+2), 1)
		d.Says(0, "pod/web configured\n", "", "apply", "--wait", "-f", d.File("web.yaml", text))
		var running []string
		for _, c := range d.Fake.State(manifests.Key{Namespace: "default", Name: "web"}).Containers {
			if c.Exit == nil {
				running = append(running, c.Image)
			}
		}
		if want := fmt.Sprint("example.com/app:", i+2); len(running) != 1 || !strings.Contains(running[0], want) {
			t.Errorf("after --wait %v run, want %s", running, want)
		}
	}
}

func TestApplyWaitsForThePodsOfWorkloads(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many}\nspec:\n  replicas: 3\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n" +
		"    spec: {containers: [{name: c, image: \"example.com/app:%d\", command: [sh, -c, \"" + runtimetest.ScriptServe + "\"]}]}\n"
	for i, verdict := range []string{"created", "configured"} {
		d.Says(0, "deployment/many "+verdict+"\n", "", "apply", "--wait", "-f", d.File("many.yaml", fmt.Sprintf(text, i)))
		for n := range 3 {
			s := d.Fake.State(manifests.Key{Namespace: "default", Name: fmt.Sprint("many-", n)})
			if len(s.Containers) != 1 || !strings.Contains(s.Containers[0].Image, fmt.Sprint("app:", i)) {
				t.Errorf("many-%d after %s: %+v", n, verdict, s.Containers)
			}
		}
	}
}

func TestDeleteWaitsForThePodsOfWorkloads(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	path := d.File("set.yaml", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  replicas: 2\n  serviceName: db\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n"+
		"    spec: {containers: [{name: c, image: i, command: [sh, -c, \""+runtimetest.ScriptSlowStop+"\"]}]}\n")
	d.Says(0, "statefulset/db created\n", "", "apply", "--wait", "-f", path)
	d.Says(0, "statefulset/db deleted\n", "", "delete", "-f", path)
	if r := d.Cmd("get", "pods"); r.Stdout != "" {
		t.Errorf("left: %s", r.Stdout)
	}
}

func TestWithoutADaemonNothingIsApplied(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	r := d.Cmd("apply", "-f", d.File("web.yaml", daemontest.PodYAML("web", "x")))
	if r.Code != program.ExitError || !strings.Contains(r.Stderr, "is monopod running?") {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r := d.CmdContext(ctx, "wait", "x"); r.Code != program.ExitError {
		t.Errorf("%+v", r)
	}
}

// A pod that was rolled back never reaches the applied manifest, so the wait ends at once.
func TestWhoWaitsForAPodThatIsTakenBackIsToldAtOnce(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	const back = "monopod: pod default/web was rolled back: revision 1 runs instead of 2 until the manifest changes: by hand\n"
	d.Says(0, "pod/web created\n", "", "apply", "--wait", "-f", d.File("web.yaml", clitest.Edition("1")))
	d.Shows("  Ready  ", "history", "pod", "web")
	never := d.File("web.yaml", strings.Replace(clitest.Edition("2"), "image:", "readinessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: 3600}, image:", 1))
	done := make(chan clitest.Result, 1)
	go func() { done <- d.Cmd("apply", "--wait", "--timeout=0", "-f", never) }()
	d.PodIs("web", "trying revision 2", func(p *corev1.Pod) error {
		if p.Annotations[node.AnnotationRevision] != "2" || manifests.IsReady(p) {
			return errors.New(podtable.PodStatus(p))
		}
		return nil
	})
	if r := d.Cmd("rollback", "pod", "web"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if r := <-done; r.Code != program.ExitError || r.Stdout != "pod/web configured\n" || r.Stderr != back {
		t.Errorf("%+v", r)
	}
	d.Says(1, "pod/web unchanged\n", back, "apply", "--wait", "--timeout=0", "-f", never)
	d.Says(0, "pod/web unchanged\n", "warning: pod/web: revision 1 runs instead of 2 until the manifest changes: by hand\n", "apply", "-f", never)
	d.RunsImage("1")
	d.Says(0, "pod/web condition met\n", "", "wait", "pod", "web") // it is Ready, and has been what it is
	d.Says(0, "pod/web configured\n", "", "apply", "--wait", "-f", d.File("web.yaml", clitest.Edition("3")))
	if p := d.Pod("web"); p.Annotations[node.AnnotationWritten] != "" {
		t.Errorf("%v", p.Annotations)
	}
}
