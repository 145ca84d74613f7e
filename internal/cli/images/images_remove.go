package images

import (
	"context"

	"github.com/spf13/cobra"

	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/node/localapi"
)

func (p Commands) imagesRemoveCommand() *cobra.Command {
	o := &program.ClientFlags{}
	var force bool
	cmd := &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images",
		Long: "Removes images by name or digest, with all their names. A pod that needs one pulls it again at its next start, or imports it from a preload directory " +
			"when monopod starts. An image that containers use is not removed without --force; with it, these containers continue to run.\n\n" +
			"Exit code 0: all removed; 1: at least one was not.",
		Example: "monopod images rm example.com/web:1\nmonopod images rm --force example.com/tool:1",
		Args:    func(cmd *cobra.Command, args []string) error { return program.RangeArgs(1, 1000)(cmd, args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.removeImages(cmd.Context(), o, localapi.ImageRemoval{Images: args, Force: force})
		},
	}
	cmd.Flags().StringVar(&o.Socket, "socket", "", "Unix `socket` of the daemon (default: MONOPOD_SOCKET, or as configured)")
	cmd.Flags().BoolVar(&force, "force", false, "also images that containers use")
	return cmd
}

func (p Commands) removeImages(ctx context.Context, o *program.ClientFlags, r localapi.ImageRemoval) error {
	answer, err := p.Client(o).RemoveImages(ctx, r)
	if err != nil {
		return err
	}
	failed := false
	for _, i := range answer.Images {
		if i.Error != "" {
			failed = true
			p.Errs().Printf("monopod: %s: %s\n", i.Image, printer.OneLine(i.Error))
			continue
		}
		p.Out().Printf("%s: removed %s\n", i.Image, i.Digest)
	}
	if failed {
		return program.SilentError{}
	}
	return nil
}
