//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// definition is everything that chaos changes about a pod.
type definition struct {
	// command and env are generations: a change replaces the container.
	command, env int
	// host changes the sandbox; label changes nothing that runs.
	host, label int
}

// chaosPod is one of the pods of chaos: the content of its file, and what must run.
type chaosPod struct {
	name       string
	index      int
	containers []string
	policy     corev1.RestartPolicy
	// image and pull are the image and the imagePullPolicy of its containers.
	image, pull string
	// exits is the exit code of the first container; -1: it does not exit.
	exits int
	// hostPort is its port on the node, which no other test uses; 0: none.
	hostPort int32

	// file is the path of the manifest; empty if there is none.
	file string
	def  definition
	// live is what must run; nil if nothing may.
	live *definition
	// bad is set if the file contains a pod that cannot run.
	bad bool
	// edited is set if the file has changed since the last quiescence.
	edited bool
	// disturbed are containers that may have been replaced.
	disturbed map[string]bool
	// spent are containers that were killed and, depending on their policy, may stay dead. An observed removal resets this.
	spent map[string]bool
	// before are the IDs of the containers at the last quiescence.
	before map[string]string
}

func newChaosPod(t *testing.T, i int) *chaosPod {
	t.Helper()
	p := &chaosPod{
		name: fmt.Sprintf("p%d", i), index: i, containers: []string{"a"}, policy: corev1.RestartPolicyAlways, exits: -1, image: image, pull: "IfNotPresent",
		disturbed: map[string]bool{}, spent: map[string]bool{}, before: map[string]string{},
	}
	if i%2 == 0 {
		p.containers = append(p.containers, "b")
	}
	switch i {
	case 5:
		p.policy = corev1.RestartPolicyOnFailure
	case 6, 7:
		p.policy = corev1.RestartPolicyNever
	case 8:
		p.exits = 3
	case 9:
		p.policy, p.exits = corev1.RestartPolicyNever, 0
	case 10:
		p.policy, p.exits = corev1.RestartPolicyNever, 7
	case 11:
		p.policy, p.exits = corev1.RestartPolicyOnFailure, 0
	}
	if p.exits < 0 && !p.hostNetwork() && i%2 == 0 {
		p.hostPort = ports.Take(t)
	}
	return p
}

func (p *chaosPod) hostNetwork() bool { return p.index%5 == 1 }

// ends reports whether the container exits by itself.
func (p *chaosPod) ends(container string) bool { return container == "a" && p.exits >= 0 }

// generations returns the generations of a container: edits of the command affect the first container, edits of the environment the last.
func (p *chaosPod) generations(d definition, container string) string {
	gen := 0
	if container == "a" {
		gen = d.command
	}
	env := 0
	if container == p.containers[len(p.containers)-1] {
		env = d.env
	}
	return fmt.Sprintf("%d/%d", gen, env)
}

// mark identifies a container's process in the process table of the machine.
func (c *chaos) mark(p *chaosPod, container string) string {
	return fmt.Sprintf("chaos=%s/%s/%s=", c.id, p.name, container)
}

func (c *chaos) script(p *chaosPod, container string) string {
	if p.ends(container) {
		return fmt.Sprintf("echo bye; sleep 0.%d; exit %d", p.index, p.exits)
	}
	s := "trap 'exit 0' TERM; "
	switch {
	case container == "b":
		s += "yes flood of output | head -n 20000; "
	case p.hostPort > 0:
		s += fmt.Sprintf("mkdir -p /tmp/w; echo %s >/tmp/w/index.html; httpd -p 80 -h /tmp/w; ", p.name)
	case p.index == 3:
		s = "trap '' TERM; " // must be killed
	}
	if p.index%3 == 0 {
		s += "echo x >/disk/x; echo x >/memory/x; "
	}
	return s + "while :; do sleep 3600 & wait $!; done"
}

// text returns the manifest.
func (c *chaos) text(p *chaosPod, d definition) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {v: \"%d\"}}\nspec:\n", p.name, d.label)
	fmt.Fprintf(&b, "  terminationGracePeriodSeconds: 1\n  restartPolicy: %s\n", p.policy)
	if p.hostNetwork() {
		b.WriteString("  hostNetwork: true\n")
	}
	if d.host > 0 {
		fmt.Fprintf(&b, "  hostname: host%d\n", d.host)
	}
	if p.index%3 == 0 {
		b.WriteString("  volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]\n")
	}
	b.WriteString("  containers:\n")
	for _, name := range p.containers {
		gen, env, _ := strings.Cut(p.generations(d, name), "/")
		fmt.Fprintf(&b, "  - name: %s\n    image: %s\n    imagePullPolicy: %s\n    command: [sh, -c, %q]\n", name, p.image, p.pull, ": "+c.mark(p, name)+gen+"; "+c.script(p, name))
		fmt.Fprintf(&b, "    env: [{name: GEN, value: \"%s\"}]\n", env)
		if p.index%3 == 0 {
			b.WriteString("    volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]\n")
		}
		if name == "a" && p.hostPort > 0 {
			fmt.Fprintf(&b, "    ports: [{containerPort: 80, hostPort: %d}]\n", p.hostPort)
		}
	}
	return b.String()
}

func (p *chaosPod) disturb(containers ...string) {
	for _, name := range containers {
		p.disturbed[name] = true
	}
}

// edit changes the pod's file to another valid definition.
func (c *chaos) edit(p *chaosPod) string {
	d := p.def
	what := []string{"command", "env", "label", "host"}[c.rnd.IntN(4)]
	if what == "host" && p.hostNetwork() {
		what = "label" // it has the name of the node
	}
	c.gen++
	switch what {
	case "command":
		d.command = c.gen
	case "env":
		d.env = c.gen
	case "label":
		d.label = c.gen
	case "host":
		d.host = c.gen
	}
	c.accept(p, d)
	return "edit " + what + " of " + p.name
}

// accept writes a valid manifest.
func (c *chaos) accept(p *chaosPod, d definition) {
	if p.file == "" {
		p.file = p.name
		p.live = nil
	}
	last := p.live
	if last == nil { // removed a moment ago: who has not looked meanwhile sees an edit of what there was
		last = &p.def
	}
	for _, name := range p.containers {
		same := last.host == d.host && p.generations(*last, name) == p.generations(d, name)
		if !same || p.live == nil || p.edited {
			p.disturb(name)
		}
		if !same {
			delete(p.spent, name)
		}
	}
	p.def, p.live, p.bad, p.edited = d, &d, false, true
	c.write(p.file, c.text(p, d))
}

// spoil replaces a pod's manifest by one that must not run. It may do so once between two quiescences and only as the first edit; otherwise
// the last good definition would be ambiguous.
func (c *chaos) spoil(p *chaosPod) string {
	if p.edited {
		return ""
	}
	if p.file == "" {
		p.file = p.name
	}
	p.edited, p.bad = true, true
	good := c.text(p, p.def)
	kinds := map[string]string{
		"missing image": strings.ReplaceAll(c.text(p, definition{command: c.gen, host: p.def.host}), p.image, "127.0.0.1:1/none:1"),
		"unknown field": strings.Replace(good, "image:", "imag:", 1),
		"half a file":   good[:strings.Index(good, "spec:")+3],
		"no YAML":       "{{{ nonsense",
		"empty":         "",
	}
	names := []string{"missing image", "unknown field", "half a file", "no YAML", "empty"}
	kind := names[c.rnd.IntN(len(names))]
	c.write(p.file, kinds[kind])
	return kind + " for " + p.name
}

// remove removes the manifest.
func (c *chaos) remove(p *chaosPod) string {
	if p.file == "" {
		return ""
	}
	if err := os.Remove(c.path(p.file)); err != nil {
		c.t.Fatal(err)
	}
	p.file, p.live, p.bad, p.edited = "", nil, false, true
	p.disturb(p.containers...)
	return "remove " + p.name
}

// rename moves the manifest to another file name, which must not affect the pod. It is not followed by bad content before a quiescence: a
// file that was moved and then replaced between two checks is indistinguishable from a new file.
func (c *chaos) rename(p *chaosPod) string {
	if p.file == "" || p.bad {
		return ""
	}
	c.gen++
	to := fmt.Sprintf("%s-renamed-%d", p.name, c.gen)
	if err := os.Rename(c.path(p.file), c.path(to)); err != nil {
		c.t.Fatal(err)
	}
	p.file, p.edited = to, true
	return "rename the file of " + p.name
}

// write replaces a file in one of the ways that editors and tools use.
func (c *chaos) write(file, text string) {
	if c.rnd.IntN(2) == 0 {
		c.in.write(c.path(file), text)
		return
	}
	if err := os.WriteFile(c.path(file), []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *chaos) path(file string) string { return c.in.manifests + "/" + file + ".yaml" }

func (c *chaos) any() *chaosPod { return c.pods[c.rnd.IntN(len(c.pods))] }

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
