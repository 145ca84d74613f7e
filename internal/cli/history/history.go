package history

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"monopod/internal/cli/view"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/node/localapi"
)

// HistoryCommand returns `monopod history`.
func (p Commands) HistoryCommand() *cobra.Command {
	o := &program.ClientFlags{}
	output := ""
	cmd := &cobra.Command{
		Use:   "history pod NAME",
		Short: "List the revisions of a pod",
		Long: "Each accepted change of the manifest of a pod is a revision; the last 10 are kept. OUTCOME is Ready if the revision was Ready, Failed if it was rolled " +
			"back automatically, Reverted if it was rolled back because another pod of its update group failed, and Superseded if the next revision came first.",
		Example: "monopod history pod web\nmonopod history pod web -o yaml",
		Args:    program.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := program.OneOfOutputs(output, "json", "yaml"); err != nil {
				return err
			}
			key, err := o.PodArg(args)
			if err != nil {
				return err
			}
			h, err := p.Client(o).History(cmd.Context(), key.Namespace, key.Name)
			if err != nil {
				return err
			}
			if output != "" {
				return p.PrintObject(h, output)
			}
			p.printHistory(h)
			return nil
		},
	}
	o.Add(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: json or yaml, with the manifests")
	return cmd
}

func (p Commands) printHistory(h *localapi.History) {
	now := time.Now()
	rows := [][]string{{"REVISION", "OUTCOME", "AGE", "SOURCE", "NOTE"}}
	for i := range h.Revisions {
		r := &h.Revisions[i]
		rows = append(rows, []string{strconv.Itoa(r.Number), r.Outcome, view.SinceText(r.Accepted, now), r.Source, printer.OneLine(revisionNote(h, r))})
	}
	p.Table().PrintAll(rows)
	for _, line := range []string{h.Rollback, h.Update} {
		if line != "" {
			p.Out().Printf("\n%s\n", line)
		}
	}
}

// revisionNote returns the state of a revision and the reason for its outcome.
func revisionNote(h *localapi.History, r *localapi.Revision) string {
	var notes []string
	if r.Number == h.Active {
		notes = append(notes, "active")
	}
	if r.Number == h.Wanted && h.Wanted != h.Active {
		notes = append(notes, "current manifest")
	}
	if r.Reason != "" {
		notes = append(notes, r.Reason)
	}
	return strings.Join(notes, "; ")
}

// RollbackCommand returns `monopod rollback`.
func (p Commands) RollbackCommand() *cobra.Command {
	o := &program.ClientFlags{}
	to := 0
	cmd := &cobra.Command{
		Use:   "rollback pod NAME",
		Short: "Roll a pod back to an earlier revision",
		Long: "Without --to, rolls back to the last revision before the active one that was Ready. The pod keeps that revision, also after restarts and reboots, " +
			"until its manifest changes; `get`, `describe` and `history` show it. --to with the number of the latest revision rolls forward again.",
		Example: "monopod rollback pod web\nmonopod rollback pod web --to 1",
		Args:    program.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := o.PodArg(args)
			if err != nil {
				return err
			}
			if to < 0 || to == 0 && cmd.Flags().Changed("to") {
				return program.Usagef("--to is the number of a revision; see `monopod history pod %s`", key.Name)
			}
			h, err := p.Client(o).Rollback(cmd.Context(), key.Namespace, key.Name, to)
			if err != nil {
				return err
			}
			if h.Warning != "" {
				p.Errs().Println("warning:", h.Warning)
			}
			until := "; this is the current manifest"
			if h.Active != h.Wanted {
				until = fmt.Sprintf(" instead of %d until its manifest changes", h.Wanted)
			}
			p.Out().Printf("pod %s runs revision %d%s\n", key, h.Active, until)
			return nil
		},
	}
	o.Add(cmd.Flags())
	cmd.Flags().IntVar(&to, "to", 0, "`number` of the revision (default: the last one before the active one that was Ready)")
	return cmd
}

// diffOptions are the flags of `diff`.
type diffOptions struct {
	program.ClientFlags
	from, to int
}

// DiffCommand returns `monopod diff`.
func (p Commands) DiffCommand() *cobra.Command {
	o := &diffOptions{}
	cmd := &cobra.Command{
		Use:   "diff pod NAME",
		Short: "Compare revisions of a pod",
		Long: "Without flags, compares the active revision with the latest one: they differ after a rollback, and while the pod waits for its turn in an update " +
			"group. --from alone compares that revision with the latest one. Manifests are shown with defaults filled in. The exit code is 1 if there are " +
			"differences.",
		Example: "monopod diff pod web\nmonopod diff pod web --from 1 --to 2",
		Args:    program.RangeArgs(1, 2),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.diff(cmd.Context(), o, args) },
	}
	o.Add(cmd.Flags())
	cmd.Flags().IntVar(&o.from, "from", 0, "`number` of the old revision (default: the active one)")
	cmd.Flags().IntVar(&o.to, "to", 0, "`number` of the new revision (default: the latest one)")
	return cmd
}

func (p Commands) diff(ctx context.Context, o *diffOptions, args []string) error {
	key, err := o.PodArg(args)
	if err != nil {
		return err
	}
	h, err := p.Client(&o.ClientFlags).History(ctx, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	from, to := h.Active, h.Wanted
	if o.from != 0 {
		from = o.from
	}
	if o.to != 0 {
		to = o.to
	}
	var text [2][]string
	for i, n := range []int{from, to} {
		r := h.Revision(n)
		if r == nil {
			return fmt.Errorf("revision %d of pod %s is not kept; see `monopod history pod %s -n %s`", n, key, key.Name, key.Namespace)
		}
		if text[i], err = manifestLines(r.Manifest); err != nil {
			return fmt.Errorf("revision %d: %w", n, err)
		}
	}
	name := func(n int) string {
		return fmt.Sprintf("%s revision %d%s", key, n, map[bool]string{true: " (active)"}[n == h.Active])
	}
	d := unifiedDiff(name(from), name(to), text[0], text[1])
	if d == "" {
		p.Errs().Printf("no differences between revision %d and revision %d\n", from, to)
		return nil
	}
	p.Out().Lines(d)
	return program.SilentError{}
}

// manifestLines prints a manifest as YAML, without fields that are empty in every pod.
func manifestLines(manifest []byte) ([]string, error) {
	var tree map[string]any
	if err := json.Unmarshal(manifest, &tree); err != nil {
		return nil, err
	}
	delete(tree, "status")
	if meta, ok := tree["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	b, err := yaml.Marshal(tree)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), nil
}
