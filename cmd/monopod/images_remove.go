package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"monopod/internal/printer"
	"monopod/node"
	"monopod/runner/ctrd/image"
)

func (p *program) imagesRemoveCommand() *cobra.Command {
	o := &clientFlags{}
	var force bool
	cmd := &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images from this machine",
		Long: "Remove images by name or digest, with all their names. A pod that needs one pulls it again at its next start, or takes it\n" +
			"from a preload directory when monopod starts. An image that pods have containers with is refused without --force; with it,\n" +
			"these containers continue to run.\n\n" +
			"Exit code 0: all of them are removed; 1: at least one is not.",
		Args: func(cmd *cobra.Command, args []string) error { return rangeArgs(1, 1000)(cmd, args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.removeImages(cmd.Context(), o, node.ImageRemoval{Images: args, Force: force})
		},
	}
	cmd.Flags().StringVar(&o.socket, "socket", "", "unix `socket` of the daemon (default: MONOPOD_SOCKET, else as configured, "+builtInSocket+")")
	cmd.Flags().BoolVar(&force, "force", false, "also images that pods have containers with")
	return cmd
}

func (p *program) removeImages(ctx context.Context, o *clientFlags, r node.ImageRemoval) error {
	answer, err := p.client(o).RemoveImages(ctx, r)
	if err != nil {
		return err
	}
	failed := false
	for _, i := range answer.Images {
		if i.Error != "" {
			failed = true
			p.errs().Printf("monopod: %s: %s\n", i.Image, printer.OneLine(i.Error))
			continue
		}
		p.out().Printf("%s: removed %s\n", i.Image, i.Digest)
	}
	if failed {
		return silentError{}
	}
	return nil
}

// Remove implements node.Images.
func (m *images) Remove(ctx context.Context, r node.ImageRemoval) (out node.ImagesRemoved, err error) {
	service, _ := m.current()
	if service == nil {
		return out, errors.New("images cannot be seen now: " + m.board.whyBlind())
	}
	for _, ref := range r.Images {
		done := node.RemovedImage{Image: ref}
		if done.Digest, err = digestOf(ctx, service, ref); err == nil {
			err = service.Remove(ctx, done.Digest, r.Force)
		}
		switch {
		case errors.Is(err, image.ErrNeeded):
			done.Error = "pods have containers with it; remove them, or use --force: they continue to run"
		case err != nil:
			done.Error = err.Error()
		}
		out.Images = append(out.Images, done)
	}
	return out, nil
}

// digestOf is the digest of an image that is here, by its reference or its digest itself.
func digestOf(ctx context.Context, service imageService, ref string) (string, error) {
	if strings.HasPrefix(ref, "sha256:") {
		all, err := service.List(ctx)
		if err != nil {
			return "", err
		}
		for i := range all {
			if all[i].Digest == ref {
				return ref, nil
			}
		}
		return "", errors.New("no such image on this machine; `monopod images` lists them")
	}
	targets, err := service.Targets(ctx, []string{ref})
	if err != nil {
		return "", err
	}
	for digest, refs := range targets {
		if slices.Contains(refs, ref) {
			return digest, nil
		}
	}
	return "", errors.New("no such image on this machine; `monopod images` lists them")
}
