//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// mostMemory is the maximum memory of the agent under any hostile input.
const mostMemory = 150 << 20

// attacked is an instance of the released program, without the race detector, with a good pod that must not be affected.
type attacked struct {
	*instance
	good corev1.Pod
	// most is the maximum memory of the agent.
	most int
}

func newAttacked(t *testing.T, extra ...string) *attacked {
	t.Helper()
	return attack(newInstance(t, extra...))
}

// attack starts an instance to be attacked.
func attack(in *instance) *attacked {
	in.t.Helper()
	in.agent = "monopod-client" // bin/monopod
	in.put("good", sleeper("good", ":"))
	in.start()
	return &attacked{in, in.ready("good"), mostMemory}
}

// memory returns a line of /proc/PID/status of the agent, in bytes.
func (a *attacked) memory(line string) int {
	a.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\n"+line+":")
	n, err := strconv.Atoi(strings.Fields(rest + " x")[0])
	if err != nil {
		a.t.Fatal(err)
	}
	return n << 10
}

// peak returns the maximum memory of the agent since forget.
func (a *attacked) peak() int { return a.memory("VmHWM") }

// forget resets peak: see clear_refs in proc(5).
func (a *attacked) forget() {
	a.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", a.cmd.Process.Pid), []byte("5"), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// survives attacks and then checks that the agent answers, stayed within its memory limit, and left the good pod alone.
func (a *attacked) survives(name string, attack func()) {
	a.t.Helper()
	a.forget()
	attack()
	a.unharmed(name)
}

func (a *attacked) unharmed(name string) {
	a.t.Helper()
	now := a.ready("good")
	if was := a.good.Status.ContainerStatuses[0]; now.UID != a.good.UID || now.Status.ContainerStatuses[0].ContainerID != was.ContainerID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		a.t.Errorf("%s: the good pod was %s and is %s", name, brief(a.good), brief(now))
	}
	peak := a.peak()
	a.t.Logf("%-50s %4d MiB, then %d of the heap and %d of files", name, peak>>20, a.memory("RssAnon")>>20, a.memory("RssFile")>>20)
	if peak > a.most {
		a.t.Errorf("%s: the agent took %d MiB, more than %d", name, peak>>20, a.most>>20)
	}
}

// told waits until the sources of the agent report something.
func (a *attacked) told(source, want string) {
	a.t.Helper()
	a.eventually(source+" reports "+want, func() error {
		out, err := a.run("get", "sources", "-o", "json")
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("it says %.2000s", out)
		}
		return err
	})
}

const smallPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"hostile"},"spec":{"securityContext":{"runAsNonRoot":true,"runAsUser":1000,"seccompProfile":{"type":"RuntimeDefault"}},` +
	`"containers":[{"name":"c","image":"IMAGE","command":["sleep","3600"],"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}CONTAINER}]SPEC}}`

func hostilePod(container, spec string) string {
	return strings.NewReplacer("IMAGE", image, "CONTAINER", container, "SPEC", spec).Replace(smallPod)
}

func hostileWorkload(kind, spec string) string {
	return `{"apiVersion":"apps/v1","kind":"` + kind + `","metadata":{"name":"hostile"},"spec":{` + spec +
		`,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}}}`
}

// growing is an environment of one kilobyte that expands to a terabyte: each variable is eight times the previous one.
func growing() string {
	env := []string{`{"name":"A0","value":"0123456789abcdef"}`}
	for i := range 12 {
		env = append(env, fmt.Sprintf(`{"name":"A%d","value":"%s"}`, i+1, strings.Repeat(fmt.Sprintf("$(A%d)", i), 8)))
	}
	return `,"env":[` + strings.Join(env, ",") + `]`
}

// hostileManifests are small documents that expand to much data, and large ones, with the expected messages.
func hostileManifests() []struct{ name, text, want string } {
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 8), ", "))
	}
	config := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"k":"` + strings.Repeat("x", 900_000) + `"}}`
	paths := make([]string, 5_000)
	for i := range paths {
		paths[i] = fmt.Sprintf(`{"key":"k","path":"f%d"}`, i)
	}
	half := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"half"},"data":{"k":"` + strings.Repeat("x", 100_000) + `"}}`
	return []struct{ name, text, want string }{
		{"variables made of variables", hostilePod(growing(), ""), "spec.containers[0].env[5].value"},
		{"arguments made of variables", hostilePod(`,"env":[{"name":"A","value":"`+strings.Repeat("x", 100_000)+`"}],"args":["`+strings.Repeat("$(A)", 1_000_000)+`"]`, ""), "spec.containers[0].args[0]"},
		{"arguments made of a ConfigMap", half + "\n---\n" + hostilePod(`,"env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"half","key":"k"}}}],"args":["`+strings.Repeat("$(A)", 1_000_000)+`"]`, ""), "pod args[0]"},
		{"one key under many paths", config + "\n---\n" + hostilePod(`,"volumeMounts":[{"name":"v","mountPath":"/v"}]`, `,"volumes":[{"name":"v","configMap":{"name":"big","items":[`+strings.Join(paths, ",")+`]}}]`), "pod more than 32 MiB"},
		{"replicas", hostileWorkload("Deployment", `"replicas":1000000000`), "spec.replicas"},
		{"pods of a StatefulSet", hostileWorkload("StatefulSet", `"serviceName":"s","replicas":1000000000`), "spec.replicas"},
		{"a billion laughs", laughs, "aliases expand to more than"},
		{"a file of one size", strings.Repeat("#", 11<<20), "MiB"},
		{"objects without end", strings.Repeat("{\"kind\":\"Namespace\",\"apiVersion\":\"v1\"}\n", 25_000), "more than 20000 objects"},
		{"brackets without end", strings.Repeat("[", 9<<20), "lines, commas and brackets"},
		{"many pods", manyPods(5_000), "at most"},
		{"as many pods as there may be", manyPods(1_900), "pods 1900"},
	}
}

func manyPods(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("---\n" + strings.Replace(hostilePod("", ""), `"hostile"`, fmt.Sprintf(`"hostile-%d"`, i), 1) + "\n")
	}
	return b.String()
}

// TestAttackManifests: hostile manifests in the directory and from a server, where podSecurity is restricted, affect neither memory nor
// other pods, even when the agent starts again with its cached copy.
func TestAttackManifests(t *testing.T) {
	site := newSite(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	site.authority(ca)
	a := newAttacked(t, "maxPods: 3", fmt.Sprintf("sources: [{name: fleet, url: %q, caFile: %s, period: 1s, podSecurity: restricted}]", "https://"+site.address+"/pods.yaml", ca))
	t.Cleanup(func() { site.says("# nothing any more\n") })
	for i, m := range hostileManifests() {
		if !large() && i%4 != 0 { // each of them is looked at by the unit tests of manifests and runner/spec
			continue
		}
		a.survives(m.name+", from a file", func() {
			a.put("hostile", m.text)
			a.settled(m.want)
		})
		a.drop("hostile")
		a.survives(m.name+", from a server", func() {
			site.says(m.text)
			a.settled(m.want)
		})
		if strings.HasPrefix(m.want, "pod") { // it was taken, so there is a copy
			a.kill9()
			a.start()
			a.unharmed(m.name + ", from the copy")
		}
		site.says("# nothing any more\n")
		a.told("fleet", `"Accepted"`)
	}
}

// settled waits until a reason is reported: by the source; with "pod " by the pod; with "pods " until there are so many pods.
func (a *attacked) settled(want string) {
	a.t.Helper()
	if reason, of := strings.CutPrefix(want, "pod "); of {
		a.pod("hostile", "says "+reason, func(p corev1.Pod) bool { return strings.Contains(brief(p), reason) })
		return
	}
	if n, of := strings.CutPrefix(want, "pods "); of {
		a.eventually(n+" pods", func() error {
			all, err := a.pods()
			if err == nil && strconv.Itoa(len(all)) < n && len(all) < 1000 {
				err = fmt.Errorf("there are %d", len(all))
			}
			return err
		})
		return
	}
	a.told("a source", want)
}
