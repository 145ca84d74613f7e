package change

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/internal/cli/check"
	"monopod/internal/config"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/kinds"
	"monopod/node/localapi"
)

// applyOptions are the flags of `apply` and `delete`.
type applyOptions struct {
	program.ClientFlags
	files   []string
	dryRun  bool
	wait    bool
	timeout time.Duration
	output  string
	quiet   bool
	// ignoreNotFound is a flag of `delete`.
	ignoreNotFound bool
}

func (o *applyOptions) add(set *pflag.FlagSet, what string) {
	o.AddSocket(set)
	set.StringArrayVarP(&o.files, "filename", "f", nil, "`file` or directory with the manifests to "+what+", or - for standard input; repeatable")
	set.BoolVar(&o.dryRun, "dry-run", false, "only report what would be done")
	set.StringVarP(&o.output, "output", "o", "", "output `format`: name")
	set.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress or warnings")
}

// ApplyCommand returns `monopod apply`.
func (p Commands) ApplyCommand() *cobra.Command {
	o := &applyOptions{}
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Apply manifests",
		Long: "The daemon checks the manifests as one set, stores each object as a file below its rootDirectory and runs it from there, also after a reboot. If one " +
			"object is refused, nothing is stored. Each object is reported as created, configured or unchanged.\n\n" +
			"An object that a file of staticPodPath or a URL already defines cannot be overridden; the error names its source. The same content may be applied: it " +
			"takes over without a restart once the other source no longer defines it.\n\n" +
			"With --wait, returns when all pods of the manifests, including those of workloads, are Ready or have succeeded.\n\n" +
			"Exit code 0: done; 1: refused, or a pod failed or was rolled back; 2: timeout or invalid command line. Only root may apply.",
		Example: "monopod apply -f web.yaml\nmonopod apply -f manifests --wait --timeout=2m",
		Args:    program.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.apply(cmd.Context(), o) },
	}
	o.add(cmd.Flags(), "apply")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until the pods are Ready or have succeeded")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "longest `duration` to wait with --wait; 0: no limit")
	return cmd
}

// DeleteCommand returns `monopod delete`.
func (p Commands) DeleteCommand() *cobra.Command {
	o := &applyOptions{}
	cmd := &cobra.Command{
		Use:   "delete KIND NAME...|KIND/NAME...|-f FILE|DIR|-",
		Short: "Delete applied objects",
		Long: "Deletes objects that `monopod apply` stored, by kind and name or as listed in files, and waits until their pods are gone. Pods get their termination " +
			"grace period. To remove an object that a file of staticPodPath or a URL defines, change that source; the error names it.\n\n" +
			"Exit code 0: done; 1: not found or not deletable; 2: timeout or invalid command line.",
		Example: "monopod delete deploy/web\nmonopod delete -f web.yaml --ignore-not-found",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return p.delete(cmd.Context(), o, args) },
	}
	o.add(cmd.Flags(), "delete")
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "", "`namespace` of the objects")
	cmd.Flags().BoolVar(&o.ignoreNotFound, "ignore-not-found", false, "treat missing objects as deleted")
	cmd.Flags().BoolVar(&o.wait, "wait", true, "wait until the pods are gone")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "longest `duration` to wait; 0: no limit")
	return cmd
}

func (p Commands) apply(ctx context.Context, o *applyOptions) error {
	if err := program.OneOfOutputs(o.output, "name"); err != nil {
		return err
	}
	if len(o.files) == 0 {
		return program.Usagef("no manifests; use -f FILE, -f DIR or -f - for standard input")
	}
	files, err := p.readManifests(o.files)
	if err != nil {
		return err
	}
	c := p.Client(&o.ClientFlags)
	result, err := c.Apply(ctx, localapi.ApplyRequest{Files: files, DryRun: o.dryRun})
	if err != nil {
		return p.refused(err)
	}
	p.printResult(o, result)
	if !o.wait || o.dryRun {
		p.printRollbacks(result)
		return nil
	}
	goals := map[manifests.Key]goal{}
	for _, object := range result.Objects {
		for _, pod := range object.Pods {
			if object.Warning == "" {
				goals[manifests.Key{Namespace: pod.Namespace, Name: pod.Name}] = appliedGoal(pod.Manifest)
			}
		}
	}
	return p.await(ctx, c, awaited{goals: goals, timeout: o.timeout, shown: !o.quiet})
}

// printRollbacks warns about pods that run an earlier revision: applying the same manifest again does not change that.
func (p Commands) printRollbacks(r localapi.ApplyResult) {
	for _, object := range r.Objects {
		for _, pod := range object.Pods {
			if pod.Rollback != "" {
				p.Errs().Printf("warning: pod/%s: %s\n", pod.Name, pod.Rollback)
			}
		}
	}
}

// readManifests reads the files of the -f flags.
func (p Commands) readManifests(paths []string) ([]localapi.ManifestFile, error) {
	var files []localapi.ManifestFile
	var errs []error
	for _, f := range check.NewCommands(p.Program).ManifestFiles(paths) {
		switch {
		case f.Ignored == verdict.SubDirectory:
			p.Errs().Printf("%s: %s\n", f.Name, f.Ignored)
		case f.Ignored != "":
		case f.Err != nil:
			errs = append(errs, printer.ErrorAbout(f.Name, f.Err))
		default:
			files = append(files, localapi.ManifestFile{Name: f.Name, Content: f.Content})
		}
	}
	return files, errors.Join(errs...)
}

// refused prints the errors of a refusal in the format of `validate`, which editors understand.
func (p Commands) refused(err error) error {
	if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
		return err
	}
	p.Errs().Lines(err.Error()) // node.Refusal keeps each reason in one line
	return program.SilentError{}
}

func (p Commands) printResult(o *applyOptions, r localapi.ApplyResult) {
	for _, n := range r.Notes {
		p.Errs().Println(n)
	}
	if !o.quiet {
		for _, w := range r.Warnings {
			p.Errs().Println(w)
		}
	}
	dry := ""
	if o.dryRun {
		dry = " (dry run)"
	}
	for _, object := range r.Objects {
		switch {
		case object.Verdict == localapi.NotFound:
			continue
		case o.output == "name":
			p.Out().Println(strings.ToLower(object.Kind) + "/" + object.Name)
		default:
			p.Out().Printf("%s %s%s\n", object, object.Verdict, dry)
		}
		if object.Warning != "" {
			p.Errs().Printf("warning: %s %s\n", object, object.Warning)
		}
	}
}

func (p Commands) delete(ctx context.Context, o *applyOptions, args []string) error {
	if err := program.OneOfOutputs(o.output, "name"); err != nil {
		return err
	}
	if (len(o.files) == 0) == (len(args) == 0) {
		return program.Usagef("nothing to delete; expected KIND NAME, for example `monopod delete pod web`, or -f FILE")
	}
	refs, err := o.objectRefs(args)
	if err != nil {
		return err
	}
	files, err := p.readManifests(o.files)
	if err != nil {
		return err
	}
	c := p.Client(&o.ClientFlags)
	result, err := c.Delete(ctx, localapi.DeleteRequest{Files: files, Objects: refs, DryRun: o.dryRun})
	if err != nil {
		return p.refused(err)
	}
	p.printResult(o, result)
	missing := p.printMissing(o, result)
	if o.wait && !o.dryRun {
		goals := map[manifests.Key]goal{}
		for _, object := range result.Objects {
			for _, pod := range object.Pods {
				goals[manifests.Key{Namespace: pod.Namespace, Name: pod.Name}] = goneGoal()
			}
		}
		if err := p.await(ctx, c, awaited{goals: goals, timeout: o.timeout, shown: !o.quiet}); err != nil {
			return err
		}
	}
	if missing {
		return program.SilentError{}
	}
	return nil
}

// printMissing prints which objects do not exist, and returns whether that is an error.
func (p Commands) printMissing(o *applyOptions, r localapi.ApplyResult) bool {
	missing := false
	for _, object := range r.Objects {
		if object.Verdict == localapi.NotFound && !o.ignoreNotFound {
			missing = true
			p.Errs().Printf("monopod: %s not found among applied objects\n", object)
		}
	}
	return missing
}

// objectRefs parses "KIND NAME..." or "KIND/NAME...".
func (o *applyOptions) objectRefs(args []string) ([]localapi.ObjectRef, error) {
	var refs []localapi.ObjectRef
	word := ""
	for i, arg := range args {
		kind, name, slash := strings.Cut(arg, "/")
		switch _, _, known := kinds.Find(kind); {
		case slash && known && word == "":
		case i == 0 && !slash:
			word = arg
			continue
		case word != "":
			kind, name = word, arg
		default:
			return nil, program.Usagef("invalid %q; expected KIND/NAME", arg)
		}
		ref, err := o.objectRef(kind, name)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	if len(args) > 0 && len(refs) == 0 {
		kind := "pod"
		if _, _, known := kinds.Find(args[0]); known {
			kind = args[0]
		}
		return nil, program.Usagef("expected KIND NAME, for example `delete %s web`", kind)
	}
	return refs, nil
}

func (o *applyOptions) objectRef(word, name string) (localapi.ObjectRef, error) {
	kind, namespaced, ok := kinds.Find(word)
	if !ok {
		return localapi.ObjectRef{}, program.Usagef("unknown kind %q%s", word, program.AppendHint(config.DidYouMean(word, lowerKinds())))
	}
	if !namespaced {
		if name == "" || strings.Contains(name, "/") {
			return localapi.ObjectRef{}, program.Usagef("%q is not the name of a %s", name, kind)
		}
		return localapi.ObjectRef{Kind: kind, Name: name}, nil
	}
	key, err := o.PodKey(name)
	if err != nil {
		return localapi.ObjectRef{}, program.Usagef("%q is not the name of a %s; write NAME or NAMESPACE/NAME", name, kind)
	}
	return localapi.ObjectRef{Kind: kind, Namespace: key.Namespace, Name: key.Name}, nil
}

func lowerKinds() []string {
	var all []string
	for _, kind := range kinds.All() {
		all = append(all, strings.ToLower(kind))
	}
	return all
}
