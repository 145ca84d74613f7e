// Package verdict checks manifests as a daemon would: what they contain, what is wrong, and which of them conflict.
//
// It must not read files or talk to a daemon. It has no goroutines.
package verdict

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"monopod/internal/host"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/warn"
	"monopod/runner/admit"
)

// Report returns the verdict as a report of a source.
func (v *Verdict) Report(source string) model.Input {
	r := model.Input{Source: source, Input: v.File, State: model.InputAccepted, Objects: v.Objects, Since: time.Now()}
	for _, pod := range v.Pods {
		r.Pods = append(r.Pods, pod.Namespace+"/"+pod.Name)
	}
	return r
}

// StdinName is the name of the standard input in messages.
const StdinName = "<stdin>"

// Verdict is the result of checking one input.
type Verdict struct {
	File string `json:"file"`
	// Ignored reports that the daemon ignores the file, too, and Reason why.
	Ignored bool       `json:"ignored,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Pods    []ValidPod `json:"pods"`
	// Objects are the documents that are not pods, like "ConfigMap default/app".
	Objects []string `json:"objects,omitempty"`
	// Notes are about documents that have no effect here.
	Notes []string `json:"notes,omitempty"`
	// Unread reports that documents are ignored that change what pods do in a cluster, or keys are not what was written.
	Unread bool `json:"-"`
	// Warnings are about what will wait, or works differently than in a cluster.
	Warnings []*manifests.Error `json:"warnings,omitempty"`
	Errors   []*manifests.Error `json:"errors"`

	Loaded               []*manifests.Pod    `json:"-"`
	Documents, Workloads []*manifests.Object `json:"-"`
	// Owned are documents that are ignored: controllers in other files create them, or they are hooks of Helm.
	Owned map[manifests.ObjectID]bool `json:"-"`
}

// ValidPod is a pod of an input.
type ValidPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Line      int    `json:"line,omitempty"`
}

// InTheseFiles is the Checked of an outlook that knows nothing besides.
const InTheseFiles = "in these files"

// Warnings returns what the documents of an input will wait for on this machine, or do differently from a cluster. All that warns of
// manifests does it with this function: validate, apply, once, up and the daemon.
func Warnings(in warn.Input) []*manifests.Error {
	in.Platform = host.Platform()
	return warn.Of(in)
}

// Besides returns what a machine has besides the documents for which own reports true, as far as the pods of a source may see it. Pods and
// workloads are not hidden: they may have the ports and names of others.
func Besides(d model.Desired, s *manifests.Spaces, source string, own func(manifests.ObjectID, manifests.Origin) bool) (out warn.Documents) {
	for _, p := range d.Pods {
		if !own(podID(p), p.Origin) {
			out.Pods = append(out.Pods, p)
		}
	}
	for _, o := range d.Objects {
		if !own(o.ID(), o.Origin) && s.Sees(source, o.Origin.Source, o.Kind, o.Object.GetNamespace()) {
			out.Objects = append(out.Objects, o)
		}
	}
	for _, w := range d.Workloads {
		if !own(w.ID(), w.Origin) {
			out.Workloads = append(out.Workloads, w)
		}
	}
	return out
}

// Outlook adds the warnings about all documents together. in has what is known besides.
func Outlook(all []*Verdict, in warn.Input) {
	for _, v := range all {
		in.Pods, in.Objects, in.Workloads = append(in.Pods, v.Loaded...), append(in.Objects, v.Documents...), append(in.Workloads, v.Workloads...)
		in.Partial = in.Partial || len(v.Errors) > 0
	}
	byFile := map[string]*Verdict{}
	for _, v := range all {
		byFile[v.File] = v
	}
	for _, e := range Warnings(in) {
		if v := byFile[e.File]; v != nil { // it may be about what is known besides
			v.Warnings = append(v.Warnings, e)
		}
	}
}

// WarningLines returns the warnings, one line each.
func (v *Verdict) WarningLines() []string {
	var lines []string
	for _, w := range v.Warnings {
		said := *w
		said.Msg = "warning: " + w.Msg
		lines = append(lines, said.Error())
	}
	return lines
}

// Remarks returns the notes and, unless quiet, the warnings, one line each.
func (v *Verdict) Remarks(quiet bool) []string {
	if quiet {
		return v.Notes
	}
	return slices.Concat(v.Notes, v.WarningLines())
}

// SubDirectory is the reason to ignore a directory in one that was named.
const SubDirectory = "manifests in sub-directories are not read; name the directory, too"

// Doubtful reports whether an input without errors has warnings, or something in it is ignored.
func (v *Verdict) Doubtful() bool { return len(v.Warnings) > 0 || v.Unread || v.Reason == SubDirectory }

// IsManifestName reports whether the daemon reads files of this name.
func IsManifestName(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// Judge returns the verdict on content, or on the error of reading it.
func Judge(file string, content []byte, err error, o decode.Options) *Verdict {
	v := &Verdict{File: file, Pods: []ValidPod{}, Errors: []*manifests.Error{}}
	if err == nil {
		var c *manifests.Content
		if c, err = decode.All(file, content, o); err == nil {
			v.Loaded, v.Documents, v.Workloads, v.Notes = c.Pods, c.Objects, c.Workloads, c.Remarks()
			v.Unread = c.Missed
			v.Owned = map[manifests.ObjectID]bool{}
			for _, id := range c.LeftOut {
				v.Owned[id] = true
			}
		}
	}
	if err != nil {
		v.Errors = manifests.Errors(err)
		if len(v.Errors) == 0 {
			if pe, ok := errors.AsType[*fs.PathError](err); ok {
				err = pe.Err
			}
			v.Errors = []*manifests.Error{{File: file, Msg: err.Error()}}
		}
	}
	v.list()
	return v
}

// list sets the names of the loaded documents.
func (v *Verdict) list() {
	v.Pods, v.Objects = []ValidPod{}, nil
	for _, pod := range v.Loaded {
		v.Pods = append(v.Pods, ValidPod{Namespace: pod.Object.Namespace, Name: pod.Object.Name, Line: pod.Origin.Line})
	}
	for _, o := range slices.Concat(v.Documents, v.Workloads) {
		v.Objects = append(v.Objects, o.String())
	}
}

func podID(p *manifests.Pod) manifests.ObjectID {
	return manifests.ObjectID{Kind: "Pod", Namespace: p.Object.Namespace, Name: p.Object.Name}
}

// dropOwned removes documents that controllers in other files create.
func dropOwned(all []*Verdict) {
	var pods []*manifests.Pod
	var workloads []*manifests.Object
	for _, v := range all {
		pods, workloads = append(pods, v.Loaded...), append(workloads, v.Workloads...)
	}
	_, _, dropped := decode.DropOwned(pods, workloads)
	for _, o := range dropped {
		i := slices.IndexFunc(all, func(v *Verdict) bool { return v.File == o.Origin.File })
		if i < 0 {
			continue
		}
		v := all[i]
		v.Owned[o.ID] = true
		v.Notes = append(v.Notes, o.Note().Error())
		v.Loaded = slices.DeleteFunc(v.Loaded, func(p *manifests.Pod) bool { return o.ID == podID(p) && p.Origin == o.Origin })
		v.Workloads = slices.DeleteFunc(v.Workloads, func(w *manifests.Object) bool { return w.ID() == o.ID && w.Origin == o.Origin })
		v.list()
	}
}

// Conflicts adds the errors that inputs cause together: those of the watcher and of the runner's admission if all were in one directory.
func Conflicts(all []*Verdict) {
	dropOwned(all)
	first := map[manifests.Key]*manifests.Pod{}
	in := map[manifests.Key]*Verdict{}
	a := admit.Input{Known: map[manifests.Key]admit.Holding{}, Listed: true, AnyClass: true} // a missing class is a warning: other inputs may have it
	for _, v := range all {
		for _, pod := range v.Loaded {
			if other := first[pod.Key()]; other != nil {
				v.add(pod, "metadata.name", "is already defined at "+Place(other.Origin), "rename or remove one of them")
				continue
			}
			first[pod.Key()], in[pod.Key()] = pod, v
			a.Desired = append(a.Desired, pod)
			a.Known[pod.Key()] = admit.Holding{Seen: true}
		}
	}
	held := admit.Decide(a).Held
	for _, pod := range a.Desired {
		if h, ok := held[pod.Key()]; ok {
			in[pod.Key()].add(pod, "spec", h.Message, "")
		}
	}
}

func (v *Verdict) add(pod *manifests.Pod, field, msg, hint string) {
	v.Errors = append(v.Errors, &manifests.Error{File: v.File, Line: pod.Origin.Line, Pod: pod.Key().String(), Field: field, Msg: msg, Hint: hint})
}

// Place returns the origin as file:line, as far as it is known.
func Place(o manifests.Origin) string {
	if o.Line == 0 {
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}
