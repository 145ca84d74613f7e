package change

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"monopod/internal/cli/describe"
	"monopod/internal/cli/lookup"
	"monopod/internal/objects"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// ScaleCommand returns `monopod scale`.
func (p Commands) ScaleCommand() *cobra.Command {
	o := &changeOptions{}
	replicas := int64(-1)
	cmd := &cobra.Command{
		Use:   "scale KIND/NAME --replicas=N",
		Short: "Set the number of replicas",
		Long: "Changes spec.replicas of a Deployment, ReplicaSet or StatefulSet that `monopod apply` stored. If a file of staticPodPath or a URL defines it, change " +
			"that source; the error names it.",
		Example: "monopod scale deploy/web --replicas=3\nmonopod scale deploy/web --replicas=0",
		Args:    program.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if replicas < 0 {
				return program.Usagef("--replicas=N is required")
			}
			return p.change(cmd.Context(), o, args, amendment{verdict: "scaled", kinds: []string{"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"}, do: func(tree map[string]any) error {
				return unstructured.SetNestedField(tree, replicas, "spec", "replicas")
			}})
		},
	}
	o.add(cmd.Flags())
	cmd.Flags().Int64Var(&replicas, "replicas", -1, "`number` of pods; required")
	return cmd
}

// RestartCommand returns `monopod restart`.
func (p Commands) RestartCommand() *cobra.Command {
	o := &changeOptions{}
	cmd := &cobra.Command{
		Use:   "restart KIND/NAME",
		Short: "Restart an applied pod or workload",
		Long: "Sets the annotation " + manifests.AnnotationRestarted + " of a Pod, or in the template of a Deployment, DaemonSet or StatefulSet, " +
			"that `monopod apply` stored. Containers are replaced as after an edit, pods of a workload according to its update strategy. " +
			"If a file of staticPodPath or a URL defines the object, change that source; the error names it.",
		Example: "monopod restart deploy/web --wait\nmonopod restart pod/tool",
		Args:    program.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.change(cmd.Context(), o, args, amendment{verdict: "restarted", kinds: []string{"Pod", "Deployment", "DaemonSet", "StatefulSet"}, do: func(tree map[string]any) error {
				path := []string{"metadata", "annotations", manifests.AnnotationRestarted}
				if tree["kind"] != "Pod" {
					path = append([]string{"spec", "template"}, path...)
				}
				return unstructured.SetNestedField(tree, time.Now().Format(time.RFC3339Nano), path...)
			}})
		},
	}
	o.add(cmd.Flags())
	return cmd
}

// changeOptions are the flags of `scale` and `restart`.
type changeOptions struct {
	program.ClientFlags
	wait    bool
	timeout time.Duration
}

func (o *changeOptions) add(set *pflag.FlagSet) {
	o.Add(set)
	set.BoolVar(&o.wait, "wait", false, "wait until the change is carried out and the pods are Ready")
	set.DurationVar(&o.timeout, "timeout", 5*time.Minute, "longest `duration` to wait with --wait; 0: no limit")
}

// amendment is a change of a workload.
type amendment struct {
	// verdict is printed on success.
	verdict string
	kinds   []string
	do      func(tree map[string]any) error
}

// change modifies a workload and applies it again.
func (p Commands) change(ctx context.Context, o *changeOptions, args []string, e amendment) error {
	target, err := o.ObjectArg(args)
	if err != nil {
		return err
	}
	if !slices.Contains(e.kinds, target.Kind) {
		return program.Usagef("a %s cannot be %s; only %s can", target.Kind, e.verdict, strings.Join(e.kinds, ", "))
	}
	c := p.Client(&o.ClientFlags)
	item, err := written(ctx, c, target)
	if err != nil {
		return err
	}
	tree, err := describe.RawTree(item.Raw)
	if err != nil {
		return err
	}
	delete(tree, "status")
	unstructured.RemoveNestedField(tree, "metadata", "annotations", node.AnnotationSource)
	unstructured.RemoveNestedField(tree, "metadata", "creationTimestamp")
	if err := e.do(tree); err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	b, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	done, err := c.Apply(ctx, localapi.ApplyRequest{Files: []localapi.ManifestFile{{Name: amended, Content: b}}})
	if err != nil {
		return p.refusedChange(err)
	}
	if len(done.Objects) == 0 { // it was ignored
		return fmt.Errorf("%s was not %s: %s", target, e.verdict, strings.Join(done.Notes, "; "))
	}
	p.Out().Printf("%s %s\n", item.Name(), e.verdict)
	if !o.wait {
		return nil
	}
	hash := ""
	for _, pod := range done.Objects[0].Pods {
		hash = pod.Manifest
	}
	return p.afterChange(ctx, c, target, hash, o.timeout)
}

// amended is the name of a document that no file has. Users must not see it.
const amended = "(amended).json"

// refusedChange prints the errors of a refusal without the name and place of a document that the user has never seen.
func (p Commands) refusedChange(err error) error {
	if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
		return err
	}
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ours := strings.CutPrefix(line, amended); ours {
			_, line, _ = strings.Cut(rest, ": ")
		}
		p.Errs().Println("monopod:", line)
	}
	return program.SilentError{}
}

// written returns an object as it was applied; for a pod that is its latest accepted manifest.
func written(ctx context.Context, c *localclient.Client, o program.Object) (objects.Item, error) {
	if o.Kind != "Pod" {
		return lookup.FindObject(ctx, c, o)
	}
	pod, err := lookup.FindPod(ctx, c, o.Key)
	if err != nil {
		return objects.Item{}, err
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return objects.Item{}, fmt.Errorf("pod %s belongs to %s %s; restart that", o.Key, owner.Kind, owner.Name)
	}
	h, err := c.History(ctx, o.Key.Namespace, o.Key.Name)
	if err != nil {
		return objects.Item{}, err
	}
	r := h.Revision(h.Wanted)
	if r == nil {
		return objects.Item{}, fmt.Errorf("the manifest of pod %s is not known; see `monopod history pod %s`", o.Key, o.Key.Name)
	}
	return objects.Item{Kind: "Pod", Object: pod, Raw: r.Manifest}, nil
}
