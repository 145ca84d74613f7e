package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"monopod/internal/printer"
	"monopod/internal/regular"
	"monopod/manifests"
	"monopod/manifests/warn"
	"monopod/runner"
)

// stdinName is how messages name the standard input.
const stdinName = "<stdin>"

func (p *program) validateCommand() *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate PATH...|-",
		Short: "Say what monopod would say about manifests, without running them",
		Long: "Read manifest files, and all *.yaml, *.yml and *.json files in and below directories, and print a verdict on each:\n" +
			"accepted files on stdout, errors as file:line:column: pod: field: message on stderr. All files are taken as one\n" +
			"set: a pod that is defined twice and host ports that clash are errors too. `-` is the standard input.\n\n" +
			"Warnings, on stderr, are about what is valid and will wait, or works otherwise than in a cluster: ConfigMaps, Secrets and\n" +
			"claims that none of the files has, host ports that several pods want, Services with ports of their own.\n\n" +
			"Exit code 0: all can run; 1: there are errors, or warnings with --strict; 2: the command line is wrong. Neither root nor\n" +
			"a daemon is needed.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("what is to be validated? Name files or directories, or - for the standard input")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := oneOfOutputs(o.output, "text", "json"); err != nil {
				return err
			}
			return p.validate(args, o)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output `format`: text (default) or json")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "warnings make the exit code 1")
	return cmd
}

type validateOptions struct {
	output string
	strict bool
}

// verdict is what is said about one input.
type verdict struct {
	File string `json:"file"`
	// Ignored says that the daemon would not read it either.
	Ignored bool       `json:"ignored,omitempty"`
	Pods    []validPod `json:"pods"`
	// Objects are the documents besides pods, like "ConfigMap default/app".
	Objects []string `json:"objects,omitempty"`
	// Notes tell of documents that mean nothing here.
	Notes []string `json:"notes,omitempty"`
	// Warnings are about what will wait, or works otherwise than in a cluster.
	Warnings []*manifests.Error `json:"warnings,omitempty"`
	Errors   []*manifests.Error `json:"errors"`

	loaded             []*manifests.Pod
	objects, workloads []*manifests.Object
	// owned are documents that do not count: controllers in other files make them, or they are hooks of Helm.
	owned map[manifests.ObjectID]bool
}

type validPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Line      int    `json:"line,omitempty"`
}

// validateAnswer is the answer as JSON.
type validateAnswer struct {
	Valid bool       `json:"valid"`
	Files []*verdict `json:"files"`
}

func (p *program) validate(paths []string, o validateOptions) error {
	var all []*verdict
	seen := map[string]bool{}
	for _, path := range paths {
		for _, v := range p.verdicts(path, manifests.Options{Source: "file"}) {
			if clean := filepath.Clean(v.File); !seen[clean] { // a file may be named twice, or with its directory
				seen[clean] = true
				all = append(all, v)
			}
		}
	}
	conflicts(all)
	outlook(all)
	bad := slices.ContainsFunc(all, func(v *verdict) bool { return len(v.Errors) > 0 })
	if o.output == "json" {
		b, err := json.MarshalIndent(validateAnswer{Valid: !bad, Files: all}, "", "  ")
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(p.rawJSON(), "%s\n", b)
	} else {
		p.printVerdicts(all)
	}
	if bad || o.strict && slices.ContainsFunc(all, func(v *verdict) bool { return len(v.Warnings) > 0 }) {
		return silentError{}
	}
	return nil
}

// outlook adds what the documents will wait for, all of them together.
func outlook(all []*verdict) {
	in := warn.Input{Platform: platform()}
	for _, v := range all {
		in.Pods, in.Objects, in.Workloads = append(in.Pods, v.loaded...), append(in.Objects, v.objects...), append(in.Workloads, v.workloads...)
		in.Partial = in.Partial || len(v.Errors) > 0
	}
	warnings, errs := warn.Of(in)
	byFile := map[string]*verdict{}
	for _, v := range all {
		byFile[v.File] = v
	}
	for _, e := range warnings {
		byFile[e.File].Warnings = append(byFile[e.File].Warnings, e)
	}
	for _, e := range errs {
		byFile[e.File].Errors = append(byFile[e.File].Errors, e)
	}
}

// verdicts reads one argument: a file, a directory with what is below it, or the standard input.
func (p *program) verdicts(path string, o manifests.Options) []*verdict {
	var out []*verdict
	for _, f := range p.manifestFiles(path) {
		if f.ignored {
			out = append(out, &verdict{File: f.name, Ignored: true, Pods: []validPod{}, Errors: []*manifests.Error{}})
			continue
		}
		out = append(out, judge(f.name, f.content, f.err, o))
	}
	return out
}

// manifestFile is a file that a command line names, or one of a directory that it names.
type manifestFile struct {
	name    string
	content []byte
	// err is why it cannot be read.
	err error
	// ignored says that the daemon would not read it either, by its name.
	ignored bool
}

// manifestFiles reads one argument: a file, a directory with what is below it, or the standard input. A directory without
// manifests is an error.
func (p *program) manifestFiles(path string) []manifestFile {
	if path == "-" {
		b, err := io.ReadAll(io.LimitReader(p.stdin, manifests.MaxSize+1))
		return []manifestFile{{name: stdinName, content: b, err: err}}
	}
	if strings.HasPrefix(path, "https://") || strings.HasPrefix(path, "http://") {
		return []manifestFile{{name: path, err: errors.New("URLs are not fetched here; use curl -fsSL URL | monopod ... -, or name it in sources of the configuration")}}
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []manifestFile{readManifest(path)}
	}
	var out []manifestFile
	err = filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			out = append(out, manifestFile{name: file, err: err})
			return nil
		case file != path && strings.HasPrefix(e.Name(), ".") && e.IsDir():
			return fs.SkipDir
		case e.IsDir() || strings.HasPrefix(e.Name(), "."):
		case !isManifestName(e.Name()):
			out = append(out, manifestFile{name: file, ignored: true})
		default:
			b, err := regular.ReadFile(file, manifests.MaxSize) // nobody has named it: what blocks is not waited for
			out = append(out, manifestFile{name: file, content: b, err: err})
		}
		return nil
	})
	if err != nil {
		out = append(out, manifestFile{name: path, err: err})
	}
	if !slices.ContainsFunc(out, func(f manifestFile) bool { return !f.ignored }) {
		out = append(out, manifestFile{name: path, err: errors.New("no manifests in this directory; their names end with .yaml, .yml or .json")})
	}
	return out
}

// isManifestName says whether the daemon reads files of this name.
func isManifestName(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func readManifest(path string) manifestFile {
	f, err := os.Open(path)
	if err != nil {
		return manifestFile{name: path, err: err}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, manifests.MaxSize+1))
	return manifestFile{name: path, content: b, err: err}
}

// judge turns content, or the error of reading it, into a verdict.
func judge(file string, content []byte, err error, o manifests.Options) *verdict {
	v := &verdict{File: file, Pods: []validPod{}, Errors: []*manifests.Error{}}
	if err == nil {
		var c *manifests.Content
		if c, err = manifests.LoadAll(file, content, o); err == nil {
			v.loaded, v.objects, v.workloads, v.Notes = c.Pods, c.Objects, c.Workloads, c.Remarks()
			v.owned = map[manifests.ObjectID]bool{}
			for _, id := range c.LeftOut {
				v.owned[id] = true
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

// list fills in the names of what was loaded.
func (v *verdict) list() {
	v.Pods, v.Objects = []validPod{}, nil
	for _, pod := range v.loaded {
		v.Pods = append(v.Pods, validPod{Namespace: pod.Object.Namespace, Name: pod.Object.Name, Line: pod.Origin.Line})
	}
	for _, o := range slices.Concat(v.objects, v.workloads) {
		v.Objects = append(v.Objects, o.String())
	}
}

func podID(p *manifests.Pod) manifests.ObjectID {
	return manifests.ObjectID{Kind: "Pod", Namespace: p.Object.Namespace, Name: p.Object.Name}
}

// dropOwned leaves out what controllers in other files make.
func dropOwned(all []*verdict) {
	var pods []*manifests.Pod
	var workloads []*manifests.Object
	for _, v := range all {
		pods, workloads = append(pods, v.loaded...), append(workloads, v.workloads...)
	}
	_, _, dropped := manifests.DropOwned(pods, workloads)
	for _, o := range dropped {
		i := slices.IndexFunc(all, func(v *verdict) bool { return v.File == o.Origin.File })
		if i < 0 {
			continue
		}
		v := all[i]
		v.owned[o.ID] = true
		v.Notes = append(v.Notes, o.Note().Error())
		v.loaded = slices.DeleteFunc(v.loaded, func(p *manifests.Pod) bool { return o.ID == podID(p) && p.Origin == o.Origin })
		v.workloads = slices.DeleteFunc(v.workloads, func(w *manifests.Object) bool { return w.ID() == o.ID && w.Origin == o.Origin })
		v.list()
	}
}

// conflicts adds the errors that several inputs make together: what the watcher and the admission of the
// runner would say if all of it were in one directory.
func conflicts(all []*verdict) {
	dropOwned(all)
	first := map[manifests.Key]*manifests.Pod{}
	in := map[manifests.Key]*verdict{}
	a := runner.Admission{Known: map[manifests.Key]runner.Holding{}, Listed: true}
	for _, v := range all {
		for _, pod := range v.loaded {
			if other := first[pod.Key()]; other != nil {
				v.add(pod, "metadata.name", "is already defined at "+place(other.Origin), "give one of them another name, or remove it")
				continue
			}
			first[pod.Key()], in[pod.Key()] = pod, v
			a.Desired = append(a.Desired, pod)
			a.Known[pod.Key()] = runner.Holding{Seen: true}
		}
	}
	held := runner.Admit(a).Held
	for _, pod := range a.Desired {
		if h, ok := held[pod.Key()]; ok {
			in[pod.Key()].add(pod, "spec", h.Message, "")
		}
	}
}

func (v *verdict) add(pod *manifests.Pod, field, msg, hint string) {
	v.Errors = append(v.Errors, &manifests.Error{File: v.File, Line: pod.Origin.Line, Pod: pod.Key().String(), Field: field, Msg: msg, Hint: hint})
}

func place(o manifests.Origin) string {
	if o.Line == 0 {
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

func (p *program) printVerdicts(all []*verdict) {
	for _, v := range all {
		for _, w := range v.Warnings {
			said := *w
			said.Msg = "warning: " + w.Msg
			p.errs().Println(&said)
		}
		switch {
		case v.Ignored:
			p.out().Printf("%s: ignored, not a .yaml, .yml or .json file\n", v.File)
		case len(v.Errors) > 0:
			for _, e := range v.Errors {
				p.errs().Println(e)
			}
		case len(v.Pods)+len(v.Objects) == 0:
			v.printNotes(p.out())
			p.out().Printf("%s: ok, no pods\n", v.File)
		default:
			var names []string
			for _, pod := range v.Pods {
				names = append(names, pod.Namespace+"/"+pod.Name)
			}
			for _, o := range v.Objects {
				names = append(names, strings.Replace(o, " ", ":", 1))
			}
			v.printNotes(p.out())
			p.out().Printf("%s: ok, %s\n", v.File, strings.Join(names, " "))
		}
	}
}

// printNotes prints what is no mistake but has no effect.
func (v *verdict) printNotes(w printer.Printer) {
	for _, n := range v.Notes {
		w.Println(n)
	}
}
