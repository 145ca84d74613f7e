package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"monopod/internal/program"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/warn"
)

// ValidateCommand returns `monopod validate`.
func (p Commands) ValidateCommand() *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate PATH...|-",
		Short: "Check manifests without running them",
		Long: "Reads manifest files and all *.yaml, *.yml and *.json files in directories; `-` is standard input. Accepted files are listed on stdout, errors on " +
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
	all := p.AsOneSet(paths, decode.Options{Source: "file"})
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
	if bad || o.strict && slices.ContainsFunc(all, (*verdict.Verdict).Doubtful) {
		return program.SilentError{}
	}
	return nil
}

// AsOneSet checks arguments like Verdicts, with the errors and warnings that they cause together.
func (p Commands) AsOneSet(paths []string, o decode.Options) []*verdict.Verdict {
	all := p.Verdicts(paths, o)
	verdict.Conflicts(all)
	verdict.Outlook(all, warn.Input{Checked: verdict.InTheseFiles})
	return all
}

// Verdicts checks arguments: files, directories, or standard input.
func (p Commands) Verdicts(paths []string, o decode.Options) []*verdict.Verdict {
	var out []*verdict.Verdict
	for _, f := range p.ManifestFiles(paths) {
		if f.Ignored != "" {
			out = append(out, &verdict.Verdict{File: f.Name, Ignored: true, Reason: f.Ignored, Pods: []verdict.ValidPod{}, Errors: []*manifests.Error{}})
			continue
		}
		out = append(out, verdict.Judge(f.Name, f.Content, f.Err, o))
	}
	return out
}

func (p Commands) printVerdicts(all []*verdict.Verdict) {
	for _, v := range all {
		for _, line := range v.WarningLines() {
			p.Errs().Println(line)
		}
		switch {
		case v.Ignored:
			p.Out().Printf("%s: ignored, %s\n", v.File, v.Reason)
		case len(v.Errors) > 0:
			for _, e := range v.Errors {
				p.Errs().Println(e)
			}
		case len(v.Pods)+len(v.Objects) == 0:
			p.printNotes(v)
			p.Out().Printf("%s: ok, no pods\n", v.File)
		default:
			var names []string
			for _, pod := range v.Pods {
				names = append(names, pod.Namespace+"/"+pod.Name)
			}
			for _, o := range v.Objects {
				names = append(names, strings.Replace(o, " ", ":", 1))
			}
			p.printNotes(v)
			p.Out().Printf("%s: ok, %s\n", v.File, strings.Join(names, " "))
		}
	}
}

// printNotes prints notes: what is valid but has no effect. What a cluster would do is a warning.
func (p Commands) printNotes(v *verdict.Verdict) {
	w := p.Out()
	if v.Unread {
		w = p.Errs()
	}
	for _, n := range v.Notes {
		w.Println(n)
	}
}
