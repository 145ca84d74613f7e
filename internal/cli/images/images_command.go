package images

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"monopod/internal/needs"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/internal/units"
	"monopod/node/localapi"
)

// ImagesCommand returns `monopod images`.
func (p Commands) ImagesCommand() *cobra.Command {
	o := &program.ClientFlags{}
	var output string
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List images and pulls",
		Long: "For each image: its names, digest, size on disk (and the part it shares with no other image), last use, and why it is kept: the pods that use it, the " +
			"manifests and revisions that need it, the archives in preload directories that contain it. Other images may be removed when the disk fills up or when " +
			"they are old (`monopod docs images`). `-o json` also has the disk usage.",
		Example: "monopod images\nmonopod images -o json",
		Args:    program.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.images(cmd.Context(), o, output) },
	}
	o.AddSocket(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: wide, json, yaml or name")
	cmd.AddCommand(p.imagesRemoveCommand())
	return cmd
}

func (p Commands) images(ctx context.Context, o *program.ClientFlags, output string) error {
	if err := program.OneOfOutputs(output, "wide", "json", "yaml", "name"); err != nil {
		return err
	}
	list, err := p.Client(o).Images(ctx)
	if err != nil {
		return err
	}
	switch output {
	case "json", "yaml":
		return p.PrintObject(list, output)
	case "name":
		for i := range list.Items {
			p.Out().Println(imageTitle(&list.Items[i]))
		}
		return nil
	}
	now := time.Now()
	if len(list.Items)+len(list.Pulls) == 0 {
		p.Errs().Println("No images found.")
	}
	if len(list.Items) > 0 {
		rows := [][]string{{"IMAGE", "DIGEST", "SIZE", "LAST USED", "STAYS FOR"}}
		for i := range list.Items {
			rows = append(rows, imageRow(&list.Items[i], now, output == "wide"))
		}
		p.Table().PrintAll(rows)
	}
	if len(list.Pulls) > 0 {
		rows := [][]string{{"PULLING", "PROGRESS", "SINCE"}}
		for _, pull := range list.Pulls {
			rows = append(rows, []string{pull.Image, units.Progress(pull.Done, pull.Total), units.Ago(pull.Since, now)})
		}
		p.Out().Println()
		p.Table().PrintAll(rows)
	}
	return nil
}

// imageTitle returns the title of an image: its first name, or its digest if it has none.
func imageTitle(i *localapi.Image) string {
	if len(i.Names) > 0 {
		return i.Names[0]
	}
	return i.Digest
}

func imageRow(i *localapi.Image, now time.Time, wide bool) []string {
	name, digest := strings.Join(i.Names, ","), i.Digest
	if !wide {
		if algorithm, hex, ok := strings.Cut(digest, ":"); ok && len(hex) > 12 {
			digest = algorithm + ":" + hex[:12]
		}
	}
	size := units.Bytes(i.Size)
	if i.Own != i.Size {
		size += " (" + units.Bytes(i.Own) + " own)"
	}
	used := "never"
	switch {
	case len(i.UsedBy) > 0:
		used = "now"
	case !i.LastUsed.IsZero():
		used = units.Ago(i.LastUsed, now) + " ago"
	}
	return []string{cmp.Or(name, "<none>"), digest, size, used, cmp.Or(staysFor(i, wide), "-")}
}

// shownReasons is the maximum number of reasons in a line.
const shownReasons = 2

// staysFor returns why an image is kept.
func staysFor(i *localapi.Image, all bool) string {
	var reasons []string
	for _, pod := range i.UsedBy {
		reasons = append(reasons, "in use by "+pod)
	}
	for _, n := range i.NeededBy {
		switch n.Kind {
		case needs.NeedManifest:
			if pod, ok := strings.CutPrefix(n.By, "pod "); !ok || !slices.Contains(i.UsedBy, pod) {
				reasons = append(reasons, "manifest of "+n.By)
			}
		case needs.NeedRevision:
			reasons = append(reasons, "kept revision")
		case needs.NeedPreload:
			reasons = append(reasons, "preload "+n.By)
		case needs.NeedUndecided:
			reasons = append(reasons, "not all manifests are read yet")
		}
	}
	if more := len(reasons) - shownReasons; more > 0 && !all {
		reasons = append(reasons[:shownReasons], fmt.Sprintf("%d more", more))
	}
	return strings.Join(reasons, ", ")
}

// pullOptions are the flags of `pull`.
type pullOptions struct {
	program.ClientFlags
	output string
	absent bool
}

// PullCommand returns `monopod pull`.
func (p Commands) PullCommand() *cobra.Command {
	o := &pullOptions{}
	cmd := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images",
		Long: "The daemon pulls the images with its credentials, mirrors and signature rules, in parallel within its limits. Shows a progress bar for each on a " +
			"terminal, otherwise occasional lines; `-o json` prints one object per step. A pull that was interrupted resumes if repeated within a day. An image " +
			"that no manifest needs is kept until the disk fills up.\n\n" +
			"Exit code 0: all images are on this machine; 1: at least one is not.",
		Example: "monopod pull example.com/web:1\nmonopod pull example.com/web:1 example.com/tool:1",
		Args:    func(cmd *cobra.Command, args []string) error { return program.RangeArgs(1, 1000)(cmd, args) },
		RunE:    func(cmd *cobra.Command, args []string) error { return p.pull(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	o.AddSocket(f)
	f.StringVarP(&o.output, "output", "o", "", "output `format`: json")
	f.BoolVar(&o.absent, "if-not-present", false, "do not contact the registry for images on this machine")
	return cmd
}

func (p Commands) pull(ctx context.Context, o *pullOptions, refs []string) error {
	if err := program.OneOfOutputs(o.output, "json"); err != nil {
		return err
	}
	var show func(localapi.PullEvent)
	switch {
	case o.output == "json":
		enc := json.NewEncoder(p.RawJSON())
		show = func(e localapi.PullEvent) { _ = enc.Encode(e) }
	case program.IsTerminal(p.Raw()):
		bars := &pullBars{Program: p.Program, size: func() (int, int) { return program.Screen(p.Raw()) }}
		show = bars.show
	default:
		lines := &pullLines{Program: p.Program, said: map[string]time.Time{}}
		show = func(e localapi.PullEvent) { lines.show(e, time.Now()) }
	}
	failed := false
	err := p.Client(&o.ClientFlags).Pull(ctx, localapi.PullRequest{Images: refs, IfNotPresent: o.absent}, func(e localapi.PullEvent) error {
		failed = failed || e.State == localapi.PullFailed
		show(e)
		return nil
	})
	if err == nil && failed {
		return program.SilentError{}
	}
	return err
}

// pullEnd describes the result of a pull.
func pullEnd(e localapi.PullEvent) string {
	if e.State == localapi.PullFailed {
		return strings.TrimPrefix(cmp.Or(e.Reason, "failed")+": "+printer.OneLine(e.Error), ": ")
	}
	text := e.Digest
	if e.Total > 0 {
		text += " " + units.Bytes(e.Total)
	}
	return fmt.Sprintf("%s in %s", text, time.Duration(e.Seconds*float64(time.Second)).Round(time.Millisecond))
}

// pullLineEvery is the interval between progress lines of a pull.
const pullLineEvery = 5 * time.Second

// pullLines prints progress as lines, when standard error is not a terminal.
type pullLines struct {
	*program.Program
	said map[string]time.Time
}

func (l *pullLines) show(e localapi.PullEvent, now time.Time) {
	switch {
	case e.State == localapi.PullFailed:
		l.Errs().Printf("monopod: %s: %s\n", e.Image, pullEnd(e))
	case e.State == localapi.PullPulled:
		l.Out().Printf("%s: pulled %s\n", e.Image, pullEnd(e))
	case l.said[e.Image].IsZero():
		l.Out().Printf("%s: pulling\n", e.Image)
		l.said[e.Image] = now
	case now.Sub(l.said[e.Image]) >= pullLineEvery:
		l.Out().Printf("%s: %s\n", e.Image, units.Progress(e.Done, e.Total))
		l.said[e.Image] = now
	}
}

// pullBars shows a progress bar for each running pull, updated in place. Completed pulls are printed above.
type pullBars struct {
	*program.Program
	// size returns the columns and lines of the terminal.
	size func() (width, height int)
	bars []localapi.PullEvent
	// drawn is the number of lines to redraw.
	drawn int
}

// Columns of a bar.
const barWidth, leastBar = 30, 10

// show draws only lines that fit on the terminal, because others could not be redrawn.
func (b *pullBars) show(e localapi.PullEvent) {
	i := slices.IndexFunc(b.bars, func(o localapi.PullEvent) bool { return o.Image == e.Image })
	ended := e.State != localapi.PullPulling
	switch {
	case ended && i >= 0:
		b.bars = slices.Delete(b.bars, i, i+1)
	case !ended && i < 0:
		b.bars = append(b.bars, e)
	case !ended:
		b.bars[i] = e
	}
	var out strings.Builder
	text := printer.New(&out)
	if b.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", b.drawn) // to the first of them
	}
	out.WriteString("\r\x1b[J")
	if ended {
		mark := "done  "
		if e.State == localapi.PullFailed {
			mark = "failed"
		}
		text.Printf("%s %s %s\n", mark, e.Image, pullEnd(e))
	}
	width, height := b.size()
	shown := b.bars
	if more := len(shown) - (height - 1); more > 0 { // the cursor stands below them
		shown = shown[:max(0, len(shown)-more)]
	}
	for _, e := range shown {
		text.Printf("%s\n", barText(e, width))
	}
	b.drawn = len(shown)
	_, _ = io.WriteString(b.Raw(), out.String())
}

// barText returns at most width columns; a long image name is truncated at its beginning.
func barText(e localapi.PullEvent, width int) string {
	progress := units.Progress(e.Done, e.Total)
	bar, name := barWidth, printer.Escape(e.Image)
	for ; bar > leastBar && len("[] ")+bar+len(name+" "+progress) > width; bar-- {
		continue
	}
	if over := len("[] ") + bar + len(name+" "+progress) - width; over > 0 {
		name = ".." + name[min(over+2, len(name)):]
	}
	full := 0
	if e.Total > 0 {
		full = min(int(e.Done*int64(bar)/e.Total), bar)
	}
	text := "[" + strings.Repeat("=", full) + strings.Repeat(" ", bar-full) + "] " + name + " " + progress
	return text[:min(len(text), width)]
}
