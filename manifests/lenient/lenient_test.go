package lenient_test

import (
	"fmt"
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
)

// notesOf loads a text that must be valid, and returns its notes.
func notesOf(t *testing.T, text string) (*manifests.Content, string) {
	t.Helper()
	c, err := decode.All("f.yaml", []byte(text), decode.Options{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return c, strings.Join(c.Remarks(), "\n")
}

func TestWhatPodmanReadsIsReadWithANote(t *testing.T) {
	t.Parallel()
	c, notes := notesOf(t, `kind: List
apiVersion: v1
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a, labels: {version: 2}}
  spec:
    containers:
    - image: docker.io/library/web:1.2@sha256:1111111111111111111111111111111111111111111111111111111111111111
      command: [sleep, 10]
      args: [true, 1.5]
      imagePullPolicy: missing
      ports: [{containerPort: 80, protocol: tcp}]
      env: [{name: PORT, value: 8080}, {name: DEBUG, value: false}]
      livenessProbe: {exec: {command: [test, 1]}}
      lifecycle: {stopSignal: SIGUSR1, preStop: {exec: {command: [sleep, 5]}}}
`)
	pod := c.Pods[0].Object
	got := &pod.Spec.Containers[0]
	if got.Name != "web" || got.Command[1] != "10" || fmt.Sprint(got.Args) != "[true 1.5]" || got.ImagePullPolicy != "IfNotPresent" || got.Ports[0].Protocol != "TCP" {
		t.Errorf("the container is %+v", got)
	}
	if got.Env[0].Value != "8080" || got.Env[1].Value != "false" || pod.Labels["version"] != "2" || pod.Spec.OS.Name != "linux" {
		t.Errorf("the pod is %+v", pod)
	}
	if got.LivenessProbe.Exec.Command[1] != "1" || got.Lifecycle.PreStop.Exec.Command[1] != "5" {
		t.Errorf("probe %v, hook %v", got.LivenessProbe, got.Lifecycle.PreStop)
	}
	for _, want := range []string{
		"f.yaml:6:41: pod default/a: items[0].metadata.labels[version]: a number, or true or false, is read as text; Kubernetes requires quotes (and 7 more)",
		`f.yaml:12:24: pod default/a: items[0].spec.containers[0].imagePullPolicy: "missing" is read as IfNotPresent`,
		`f.yaml:13:45: pod default/a: items[0].spec.containers[0].ports[0].protocol: "tcp" is read as TCP`,
		"items[0].spec.containers[0].name: it is missing: the container is named web, like its image",
		"items[0].spec.os: it is missing beside stopSignal: linux is used",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in the notes:\n%s", want, notes)
		}
	}
}

func TestAWorkloadWithoutASelectorSelectsItsTemplate(t *testing.T) {
	t.Parallel()
	c, notes := notesOf(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {metadata: {labels: {app: 1}}, spec: {containers: [{name: a, image: b, args: [1]}]}}}\n")
	_, selector, _ := manifests.TemplateOf(c.Workloads[0].Object)
	if selector.MatchLabels["app"] != "1" || !strings.Contains(notes, "f.yaml:4:1: deployment default/a: spec.selector: it is missing: the labels of the template are used") {
		t.Errorf("selector %v, notes\n%s", selector, notes)
	}
}

func TestNumbersInObjectsAreTextAndNoteShowsNoSecret(t *testing.T) {
	t.Parallel()
	c, notes := notesOf(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {port: 80, tls: true}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {pin: 4711}\n")
	objects := manifests.NewObjects(c.Objects)
	if m := objects.ConfigMap("default", "a"); m.Data["port"] != "80" || m.Data["tls"] != "true" {
		t.Errorf("%v", m.Data)
	}
	if s := objects.Secret("default", "a"); string(s.Data["pin"]) != "4711" || strings.Contains(notes, "4711") || strings.Count(notes, "is read as text") != 2 {
		t.Errorf("%s", notes)
	}
}

// What could mean two things is refused, with what to write.
func TestWhatIsAmbiguousIsRefused(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"0777", "1_000", "yes", "True", "1e3", "1.10", "0x10", "+1", ".5", "123456789012345678901", "-0"} {
		got := said(t, strings.Replace(aPod, "image: b", "image: b, env: [{name: A, value: "+value+"}]", 1))
		if !strings.Contains(got, "spec.containers[0].env[0].value: expected a string") || !strings.Contains(got, fmt.Sprintf("put it in quotes: %q", value)) {
			t.Errorf("%s: %s", value, got)
		}
	}
	for _, c := range []struct{ name, text, want string }{
		{"two containers of one image", strings.Replace(aPod, "name: a, image: b}\n", "image: b}\n  - {image: b}\n", 1), "spec.containers[1].name: Required value"},
		{"an image that is no name", strings.Replace(aPod, "name: a, image: b}", "image: a_b}", 1), "spec.containers[0].name: Required value"},
		{"a selector without labels", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: a, image: b}]}}}\n", "spec.selector: Required value"},
		{"a number that is a name", strings.Replace(aPod, "{name: a}", "{name: 1}", 1), "metadata.name: expected a string"},
		{"more numbers than anybody writes", strings.Replace(aPod, "image: b", "image: b, args: ["+strings.Repeat("1,", 101)+"]", 1), "spec.containers[0].args[100]: expected a string"},
	} {
		if got := said(t, c.text); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q is not in\n%s", c.name, c.want, got)
		}
	}
}

// An API server has refused such pods already: what comes from one is taken by its word.
func TestWhatAnAPIServerSaysIsReadStrictly(t *testing.T) {
	t.Parallel()
	text := strings.Replace(aPod, "image: b", "image: b, args: [1]", 1)
	for _, a := range []decode.Author{decode.AuthorAPIServer, decode.AuthorWorkload} {
		if _, err := decode.All("f", []byte(text), decode.Options{Author: a}); err == nil {
			t.Errorf("author %d: it is accepted", a)
		}
	}
	if _, err := decode.All("f", []byte(text), decode.Options{Strict: true}); err == nil {
		t.Error("strict: it is accepted")
	}
}

func TestAKeyThatYAMLReadsAsABooleanIsNoted(t *testing.T) {
	t.Parallel()
	c, notes := notesOf(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  on: x\n")
	if m := manifests.NewObjects(c.Objects).ConfigMap("default", "a"); m.Data["true"] != "x" || notes != `f.yaml:5:3: configmap default/a: data[true]: YAML reads the key on as true: put it in quotes, "on"` {
		t.Errorf("%v\n%s", m.Data, notes)
	}
	if _, notes := notesOf(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {true: x, 'on': z}\n"); notes != "" {
		t.Errorf("%s", notes)
	}
}

// TestOptionsForWindowsAreIgnored: as by a kubelet of Linux, also of pods that an API server binds here.
func TestOptionsForWindowsAreIgnored(t *testing.T) {
	t.Parallel()
	const options = "securityContext: {windowsOptions: {runAsUserName: x}}"
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: default, uid: u}\nspec: {" + options + ", containers: [{name: c, image: b, " + options + "}]}\n"
	for _, a := range []decode.Author{decode.AuthorUser, decode.AuthorAPIServer} {
		c, err := decode.All("f.yaml", []byte(text), decode.Options{Author: a})
		if err != nil || len(c.Pods) != 1 {
			t.Fatalf("author %d: %v", a, err)
		}
		if notes := strings.Join(c.Remarks(), "\n"); a == decode.AuthorUser && strings.Count(notes, "windowsOptions: ignored: it has an effect on Windows nodes only") != 2 {
			t.Errorf("%s", notes)
		}
	}
}

// aPod is a manifest with one container.
const aPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: a, image: b}\n"

// said returns the errors of a manifest.
func said(t *testing.T, text string) string {
	t.Helper()
	_, err := decode.All("f.yaml", []byte(text), decode.Options{})
	if err == nil {
		t.Fatalf("no error in\n%s", text)
	}
	return err.Error()
}
