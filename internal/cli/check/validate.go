package check

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
	"monopod/internal/program"
	"monopod/internal/regular"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/document"
	"monopod/manifests/warn"
)

// ValidateCommand returns `monopod validate`.
func (p Commands) ValidateCommand() *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate PATH...|-",
		Short: "Check manifests without running them",
		Long: "Reads manifest files and all *.yaml, *.yml and *.json files below directories; `-` is standard input. Accepted files are listed on stdout, errors on " +
			"stderr as file:line:column: pod: field: message. All files are checked as one set: duplicate pods and clashing host ports are errors.\n\n" +
			"Warnings on stderr are about valid manifests whose pods will wait or work differently from a cluster: missing ConfigMaps, Secrets and claims, host " +
			"ports that several pods request, Services with ports of their own.\n\n" +
			"Exit code 0: all can run; 1: errors, or warnings with --strict; 2: invalid command line. Needs neither root nor a daemon.",
		Example: "monopod validate web.yaml\nmonopod validate --strict manifests",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return program.Usagef("no manifests; name files or directories, or - for standard input")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := program.OneOfOutputs(o.output, "text", "json"); err != nil {
				return err
			}
			return p.validate(args, o)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output `format`: text (default) or json")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "exit with code 1 on warnings")
	return cmd
}

type validateOptions struct {
	output string
	strict bool
}

// ValidateAnswer is the answer as JSON.
type ValidateAnswer struct {
	Valid bool               `json:"valid"`
	Files []*verdict.Verdict `json:"files"`
}

func (p Commands) validate(paths []string, o validateOptions) error {
	var all []*verdict.Verdict
	seen := map[string]bool{}
	for _, path := range paths {
		for _, v := range p.Verdicts(path, decode.Options{Source: "file"}) {
			if clean := filepath.Clean(v.File); !seen[clean] { // a file may be named twice, or with its directory
				seen[clean] = true
				all = append(all, v)
			}
		}
	}
	verdict.Conflicts(all)
	verdict.Outlook(all, warn.Input{Checked: verdict.InTheseFiles})
	bad := slices.ContainsFunc(all, func(v *verdict.Verdict) bool { return len(v.Errors) > 0 })
	if o.output == "json" {
		b, err := json.MarshalIndent(ValidateAnswer{Valid: !bad, Files: all}, "", "  ")
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(p.RawJSON(), "%s\n", b)
	} else {
		p.printVerdicts(all)
	}
	if bad || o.strict && slices.ContainsFunc(all, func(v *verdict.Verdict) bool { return len(v.Warnings) > 0 }) {
		return program.SilentError{}
	}
	return nil
}

// Verdicts checks one argument: a file, a directory tree, or standard input.
func (p Commands) Verdicts(path string, o decode.Options) []*verdict.Verdict {
	var out []*verdict.Verdict
	for _, f := range p.ManifestFiles(path) {
		if f.Ignored {
			out = append(out, &verdict.Verdict{File: f.Name, Ignored: true, Pods: []verdict.ValidPod{}, Errors: []*manifests.Error{}})
			continue
		}
		out = append(out, verdict.Judge(f.Name, f.Content, f.Err, o))
	}
	return out
}

// manifestFile is a file named on the command line, or in a directory named there.
type manifestFile struct {
	Name    string
	Content []byte
	// Err is the error if the file cannot be read.
	Err error
	// Ignored reports that the daemon ignores files with such a name, too.
	Ignored bool
}

// ManifestFiles reads one argument: a file, a directory tree, or standard input. A directory without manifests is an error.
func (p Commands) ManifestFiles(path string) []manifestFile {
	if path == "-" {
		b, err := io.ReadAll(io.LimitReader(p.Stdin, document.MaxSize+1))
		return []manifestFile{{Name: verdict.StdinName, Content: b, Err: err}}
	}
	if strings.HasPrefix(path, "https://") || strings.HasPrefix(path, "http://") {
		return []manifestFile{{Name: path, Err: errors.New("URLs are not fetched here; use curl -fsSL URL | monopod ... -, or add it to sources in the configuration")}}
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []manifestFile{readManifest(path)}
	}
	var out []manifestFile
	err = filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			out = append(out, manifestFile{Name: file, Err: err})
			return nil
		case file != path && strings.HasPrefix(e.Name(), ".") && e.IsDir():
			return fs.SkipDir
		case e.IsDir() || strings.HasPrefix(e.Name(), "."):
		case !verdict.IsManifestName(e.Name()):
			out = append(out, manifestFile{Name: file, Ignored: true})
		default:
			b, err := regular.ReadFile(file, document.MaxSize) // nobody has named it: what blocks is not waited for
			out = append(out, manifestFile{Name: file, Content: b, Err: err})
		}
		return nil
	})
	if err != nil {
		out = append(out, manifestFile{Name: path, Err: err})
	}
	if !slices.ContainsFunc(out, func(f manifestFile) bool { return !f.Ignored }) {
		out = append(out, manifestFile{Name: path, Err: errors.New("no manifests in this directory; their names end with .yaml, .yml or .json")})
	}
	return out
}

func readManifest(path string) manifestFile {
	f, err := os.Open(path)
	if err != nil {
		return manifestFile{Name: path, Err: err}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, document.MaxSize+1))
	return manifestFile{Name: path, Content: b, Err: err}
}

func (p Commands) printVerdicts(all []*verdict.Verdict) {
	for _, v := range all {
		for _, line := range v.WarningLines() {
			p.Errs().Println(line)
		}
		switch {
		case v.Ignored:
			p.Out().Printf("%s: ignored, not a .yaml, .yml or .json file\n", v.File)
		case len(v.Errors) > 0:
			for _, e := range v.Errors {
				p.Errs().Println(e)
			}
		case len(v.Pods)+len(v.Objects) == 0:
			printNotes(v, p.Out())
			p.Out().Printf("%s: ok, no pods\n", v.File)
		default:
			var names []string
			for _, pod := range v.Pods {
				names = append(names, pod.Namespace+"/"+pod.Name)
			}
			for _, o := range v.Objects {
				names = append(names, strings.Replace(o, " ", ":", 1))
			}
			printNotes(v, p.Out())
			p.Out().Printf("%s: ok, %s\n", v.File, strings.Join(names, " "))
		}
	}
}

// printNotes prints notes: fields that are valid but have no effect.
func printNotes(v *verdict.Verdict, w printer.Printer) {
	for _, n := range v.Notes {
		w.Println(n)
	}
}
