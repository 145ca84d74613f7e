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
	// ignoreNotFound belongs to `delete`.
	ignoreNotFound bool
}

func (o *applyOptions) add(set *pflag.FlagSet, what string) {
	o.AddSocket(set)
	set.StringArrayVarP(&o.files, "filename", "f", nil, "`file` with the documents to "+what+", a directory with all below it, or - for the standard input; can be given several times")
	set.BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	set.StringVarP(&o.output, "output", "o", "", "output `format`: name")
}

func (p Commands) ApplyCommand() *cobra.Command {
	o := &applyOptions{}
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Give documents to the daemon, which stores and runs them",
		Long: "Send manifests to the daemon. It checks all of them as one set, stores them as files below its rootDirectory, one for\n" +
			"each object, and runs them from there, also after a reboot. When one document is refused, nothing is stored. For each\n" +
			"object is said whether it is created, configured (it was applied before and has changed) or unchanged.\n\n" +
			"What a file of staticPodPath or a URL defines cannot be overridden: the error names it. The same content can be\n" +
			"applied, and counts once it is removed there, without a restart.\n\n" +
			"With --wait it returns when all pods of the files, those of Deployments, ReplicaSets, DaemonSets and StatefulSets included,\n" +
			"are Ready, or have succeeded, as they were applied. Exit code 0: done; 1: refused, or a pod has failed or was taken back\n" +
			"to an older revision; 2: not in time, or the command line is wrong. Only root may apply.",
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.apply(cmd.Context(), o) },
	}
	o.add(cmd.Flags(), "apply")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until the pods are Ready or have succeeded")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait with --wait; 0: for ever")
	return cmd
}

func (p Commands) DeleteCommand() *cobra.Command {
	o := &applyOptions{}
	cmd := &cobra.Command{
		Use:   "delete KIND NAME...|KIND/NAME...|-f FILE|DIR|-",
		Short: "Remove what was applied",
		Long: "Remove objects that `monopod apply` has stored: by kind and name, or those that files name. Their pods end as their\n" +
			"grace period says. What a file of staticPodPath or a URL defines is removed there: the error names it.\n\n" +
			"It returns when the pods are gone. Exit code 0: done; 1: there is no such object, or it cannot be deleted; 2: not in\n" +
			"time, or the command line is wrong.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return p.delete(cmd.Context(), o, args) },
	}
	o.add(cmd.Flags(), "delete")
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the objects")
	cmd.Flags().BoolVar(&o.ignoreNotFound, "ignore-not-found", false, "count objects that do not exist as deleted")
	cmd.Flags().BoolVar(&o.wait, "wait", true, "wait until the pods are gone")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "how long to wait; 0: for ever")
	return cmd
}

func (p Commands) apply(ctx context.Context, o *applyOptions) error {
	if err := program.OneOfOutputs(o.output, "name"); err != nil {
		return err
	}
	if len(o.files) == 0 {
		return program.Usagef("what is to be applied? Name files or directories with -f, or -f - for the standard input")
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
	return p.await(ctx, c, awaited{goals: goals, timeout: o.timeout})
}

// printRollbacks says of which pods an earlier revision runs although what is written was applied again: that is no change.
func (p Commands) printRollbacks(r localapi.ApplyResult) {
	for _, object := range r.Objects {
		for _, pod := range object.Pods {
			if pod.Rollback != "" {
				p.Errs().Printf("warning: pod/%s: %s\n", pod.Name, pod.Rollback)
			}
		}
	}
}

// readManifests reads what the -f flags name.
func (p Commands) readManifests(paths []string) ([]localapi.ManifestFile, error) {
	var files []localapi.ManifestFile
	var errs []error
	for _, path := range paths {
		for _, f := range check.NewCommands(p.Program).ManifestFiles(path) {
			switch {
			case f.Ignored:
			case f.Err != nil:
				errs = append(errs, printer.ErrorAbout(f.Name, f.Err))
			default:
				files = append(files, localapi.ManifestFile{Name: f.Name, Content: f.Content})
			}
		}
	}
	return files, errors.Join(errs...)
}

// refused prints the lines of a refusal as `validate` does, so that editors find the place.
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
		return program.Usagef("what is to be deleted? Write a kind and names, as `monopod delete pod web`, or name files with -f")
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
		if err := p.await(ctx, c, awaited{goals: goals, timeout: o.timeout}); err != nil {
			return err
		}
	}
	if missing {
		return program.SilentError{}
	}
	return nil
}

// printMissing says which objects do not exist, and whether that is an error.
func (p Commands) printMissing(o *applyOptions, r localapi.ApplyResult) bool {
	missing := false
	for _, object := range r.Objects {
		if object.Verdict == localapi.NotFound && !o.ignoreNotFound {
			missing = true
			p.Errs().Printf("monopod: %s not found among what was applied\n", object)
		}
	}
	return missing
}

// objectRefs reads "KIND NAME..." or "KIND/NAME...".
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
			return nil, program.Usagef("%q is no KIND/NAME", arg)
		}
		ref, err := o.objectRef(kind, name)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	if len(args) > 0 && len(refs) == 0 {
		return nil, program.Usagef("which %s? Write: %s NAME", args[0], args[0])
	}
	return refs, nil
}

func (o *applyOptions) objectRef(word, name string) (localapi.ObjectRef, error) {
	kind, namespaced, ok := kinds.Find(word)
	if !ok {
		return localapi.ObjectRef{}, program.Usagef("monopod has no %q%s", word, program.AppendHint(config.DidYouMean(word, lowerKinds())))
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
