// Package warn predicts, before valid manifests run, what they will wait for on this machine, and which features work differently from a
// cluster.
//
// It is pure. It knows only the documents that it is given; it must not know what runs.
package warn

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// Documents are pods and other objects.
type Documents struct {
	Pods               []*manifests.Pod
	Objects, Workloads []*manifests.Object
}

// Input is what would run together.
type Input struct {
	Documents
	// Around is what exists besides: pods may refer to it and clash with it, and there are no warnings about it.
	Around Documents
	// Checked names the only documents that are known, as in "in these files"; empty if these are all of the machine.
	Checked string
	// Partial is set if some documents could not be read, so that missing objects may exist.
	Partial bool
	// Platform is that of the machine.
	Platform manifests.Platform
	// Node is the name of the machine; empty if it is not known.
	Node string
}

// most is how many warnings there are at most: more are of one kind.
const most = 200

// Of returns the warnings about an input.
func Of(in Input) []*manifests.Error {
	c := &checker{Input: in, objects: manifests.NewObjects(slices.Concat(in.Objects, in.Around.Objects))}
	around := units(in.Around)
	for _, u := range around {
		u.around = true
	}
	c.units = append(around, units(in.Documents)...)
	for _, u := range c.units[len(around):] {
		c.platform(u)
		c.node(u)
		c.quantities(u)
		c.users(u)
		c.affinity(u)
		if !in.Partial {
			c.references(u)
		}
	}
	c.ports()
	c.names()
	for _, o := range in.Objects {
		c.object(o)
	}
	for _, o := range in.Workloads {
		if s, ok := o.Object.(*appsv1.StatefulSet); ok {
			c.claims(o, s)
		}
	}
	if more := len(c.warnings) - most; more > 0 {
		last := *c.warnings[most-1]
		last.Field, last.Msg, last.Hint = "", fmt.Sprintf("there are %d more warnings", more+1), ""
		c.warnings = append(c.warnings[:most-1], &last)
	}
	return c.warnings
}

type checker struct {
	Input
	objects  *manifests.Objects
	units    []*unit
	warnings []*manifests.Error
}

// unit is a pod, or the pods of a workload.
type unit struct {
	id     manifests.ObjectID
	origin manifests.Origin
	// path is that of what is like a pod in the document: empty, or like "spec.template.".
	path   string
	labels map[string]string
	spec   *corev1.PodSpec
	// copies is how many there are at once, names how they are called; a CronJob's are called by the time.
	copies int
	names  []string
	// claims are those that it makes itself, by the volume's name.
	claims []string
	// around is set if it is no part of what is checked.
	around bool
}

func units(in Documents) []*unit {
	var all []*unit
	for _, p := range in.Pods {
		id := manifests.ObjectID{Kind: "Pod", Namespace: p.Object.Namespace, Name: p.Object.Name}
		all = append(all, &unit{id: id, origin: p.Origin, labels: p.Object.Labels, spec: &p.Object.Spec, copies: 1, names: []string{id.Name}})
	}
	for _, w := range in.Workloads {
		t := manifests.PodTemplate(w.Object)
		if t == nil {
			continue
		}
		u := &unit{id: w.ID(), origin: w.Origin, path: "spec.template.", labels: t.Labels, spec: &t.Spec, copies: manifests.MaxPods(w.Object)}
		first := 0
		switch o := w.Object.(type) {
		case *batchv1.CronJob:
			u.path = "spec.jobTemplate.spec.template."
		case *appsv1.StatefulSet:
			if o.Spec.Ordinals != nil {
				first = int(o.Spec.Ordinals.Start)
			}
			for i := range o.Spec.VolumeClaimTemplates {
				u.claims = append(u.claims, o.Spec.VolumeClaimTemplates[i].Name)
			}
		}
		if _, byTime := w.Object.(*batchv1.CronJob); !byTime {
			for i := range u.copies {
				u.names = append(u.names, fmt.Sprintf("%s-%d", u.id.Name, first+i))
			}
		}
		all = append(all, u)
	}
	return all
}

// about makes a finding about a unit.
func (u *unit) about(field, msg, hint string) *manifests.Error {
	e := finding(u.id, u.origin, msg, hint)
	e.Field = u.path + field
	return e
}

func finding(id manifests.ObjectID, at manifests.Origin, msg, hint string) *manifests.Error {
	e := &manifests.Error{File: at.File, Line: at.Line, Kind: id.Kind, Pod: strings.TrimPrefix(id.String(), id.Kind+" "), Msg: msg, Hint: hint}
	if id.Kind == "Pod" {
		e.Kind = ""
	}
	return e
}

func (c *checker) warn(e *manifests.Error) { c.warnings = append(c.warnings, e) }

// thereIsNo says that an object is missing.
func (c *checker) thereIsNo(what string) string {
	if c.Checked != "" {
		what += " " + c.Checked
	}
	return "there is no " + what
}

// containers calls f for each container of a unit, with its path.
func (u *unit) containers(f func(path string, c *corev1.Container)) {
	for _, list := range []struct {
		name string
		all  []corev1.Container
	}{{"initContainers", u.spec.InitContainers}, {"containers", u.spec.Containers}} {
		for i := range list.all {
			f(fmt.Sprintf("spec.%s[%d]", list.name, i), &list.all[i])
		}
	}
}

func (c *checker) platform(u *unit) {
	if m := c.Platform.Mismatch(u.spec); m != nil {
		c.warn(u.about(m.Field, "it is never started on this machine: "+m.String(), "remove it, or run it on another machine"))
	}
}

// node warns of pods that a cluster would run on another machine.
func (c *checker) node(u *unit) {
	if name := u.spec.NodeName; name != "" && c.Node != "" && name != c.Node {
		c.warn(u.about("spec.nodeName", fmt.Sprintf("it runs on this machine, %s, although it names %s", c.Node, name), "remove it, or choose machines with spec.nodeSelector"))
	}
}

// object warns about what an object other than a pod asks for in vain.
func (c *checker) object(o *manifests.Object) {
	switch t := o.Object.(type) {
	case *corev1.Service:
		c.service(o, t)
	case *corev1.PersistentVolume:
		c.persistentVolume(o, t)
	case *corev1.PersistentVolumeClaim:
		c.claim(o, "spec", &t.Spec)
		c.claimAmounts(o, "spec", &t.Spec)
	}
}

func (c *checker) service(o *manifests.Object, s *corev1.Service) {
	say := func(field, msg, hint string) {
		e := finding(o.ID(), o.Origin, msg, hint)
		e.Field = field
		c.warn(e)
	}
	spec := &s.Spec
	if spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	if len(spec.Selector) == 0 {
		say("spec.selector", "it is missing: the name resolves to no pod, and Endpoints are not read", "set it to the labels of the pods")
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if p.Protocol == corev1.ProtocolSCTP {
			say(fmt.Sprintf("spec.ports[%d].protocol", i), "Services do not forward SCTP", "make the Service headless, with clusterIP: None, and use the ports of the pods")
		}
	}
}

// names warns of pods that are called like those of a workload.
func (c *checker) names() {
	first := map[manifests.Key]*unit{}
	for _, u := range c.units {
		for _, name := range u.names {
			key := manifests.Key{Namespace: u.id.Namespace, Name: name}
			other := first[key]
			if other == nil {
				first[key] = u
				continue
			}
			if slices.Contains([]string{u.id.Kind, other.id.Kind}, "Pod") && u.id.Kind == other.id.Kind {
				continue // that is an error
			}
			if u.around {
				continue
			}
			e := finding(u.id, u.origin, fmt.Sprintf("its pod %s has the same name as that of %s at %s: only one of them runs", name, other.id, place(other.origin)), "rename one of them")
			e.Field = "metadata.name"
			c.warn(e)
			break
		}
	}
}

func place(o manifests.Origin) string { return fmt.Sprintf("%s:%d", o.File, o.Line) }
