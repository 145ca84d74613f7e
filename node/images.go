package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ImageList is the answer to GET /v1/images.
type ImageList struct {
	Items []Image `json:"items"`
	// Pulls are under way.
	Pulls []ImagePull `json:"pulls,omitempty"`
	Disk  ImageDisk   `json:"disk"`
}

// Image is an image with all its names.
type Image struct {
	// Digest is that of its manifest or index.
	Digest string `json:"digest"`
	// Names are complete references, RepoDigests those by digest that registries gave.
	Names       []string `json:"names,omitempty"`
	RepoDigests []string `json:"repoDigests,omitempty"`
	// Size is how many bytes it takes, compressed and unpacked, Own those that it shares with no other image.
	Size int64 `json:"size"`
	Own  int64 `json:"own"`
	// FirstSeen is when it came, LastUsed when the last container with it went; absent when one is there, or never was.
	FirstSeen time.Time `json:"firstSeen"`
	LastUsed  time.Time `json:"lastUsed,omitzero"`
	// UsedBy are the pods with a container of it, as namespace/name.
	UsedBy []string `json:"usedBy,omitempty"`
	// NeededBy is why it is not removed when the disk is full; nothing: it may be.
	NeededBy []ImageNeed `json:"neededBy,omitempty"`
}

// ImageNeed is a reason to keep an image.
type ImageNeed struct {
	// Kind is Manifest, Revision, Preload or Undecided.
	Kind string `json:"kind"`
	// By is the object that names it, or the file that holds it.
	By string `json:"by,omitempty"`
}

// ImagePull is a pull that is under way.
type ImagePull struct {
	Image string    `json:"image"`
	Since time.Time `json:"since"`
	// Done and Total are bytes; Total is 0 until the registry has said what there is.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// ImageDisk is the file system of the images.
type ImageDisk struct {
	Capacity  int64 `json:"capacity"`
	Available int64 `json:"available"`
	// UsedPercent is how full it is; at HighPercent images that nobody needs go until it is at LowPercent. 100: they stay.
	UsedPercent int `json:"usedPercent"`
	HighPercent int `json:"highPercent"`
	LowPercent  int `json:"lowPercent"`
}

// PullRequest is the body of POST /v1/images/pull.
type PullRequest struct {
	Images []string `json:"images"`
	// IfNotPresent: what is here is not asked for again.
	IfNotPresent bool `json:"ifNotPresent,omitempty"`
}

// States of an image that is being pulled.
const (
	PullPulling = "Pulling"
	PullPulled  = "Pulled"
	PullFailed  = "Failed"
)

// PullEvent tells how far the pull of an image is. The last one of each image is Pulled or Failed.
type PullEvent struct {
	Image string `json:"image"`
	State string `json:"state"`
	// Done and Total are as in ImagePull.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	// Digest and Seconds tell what came of it, Reason and Error why nothing did.
	Digest  string  `json:"digest,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// Images knows the images of this machine.
type Images interface {
	// Images returns all of them.
	Images(ctx context.Context) (*ImageList, error)
	// Pulls returns those of these references that are under way, as they are written.
	Pulls(ctx context.Context, refs []string) ([]ImagePull, error)
	// Pull fetches images and calls tell, never twice at once, until each of them is here or could not be had. The error
	// says that nothing was done.
	Pull(ctx context.Context, r PullRequest, tell func(PullEvent)) error
	// Remove removes images. The error says that nothing could be done; what became of each is in the answer.
	Remove(ctx context.Context, r ImageRemoval) (ImagesRemoved, error)
}

// ImageRemoval is the body of DELETE /v1/images.
type ImageRemoval struct {
	// Images are references, or digests of manifests or indices.
	Images []string `json:"images"`
	// Force removes also those that pods have containers with: these continue to run.
	Force bool `json:"force,omitempty"`
}

// ImagesRemoved is the answer to it, in the same order.
type ImagesRemoved struct {
	Images []RemovedImage `json:"images"`
}

// RemovedImage is what became of one image.
type RemovedImage struct {
	Image string `json:"image"`
	// Digest is that of what was removed.
	Digest string `json:"digest,omitempty"`
	// Error is why it was not; empty: it was.
	Error string `json:"error,omitempty"`
}

// imageRoutes adds what is about images.
func (s *Server) imageRoutes(mux *http.ServeMux) {
	if s.cfg.Images == nil {
		return
	}
	mux.HandleFunc("GET /v1/images", func(w http.ResponseWriter, r *http.Request) {
		list, err := s.cfg.Images.Images(r.Context())
		if err != nil {
			s.fail(w, statusError(http.StatusServiceUnavailable, err.Error()))
			return
		}
		s.json(w, list)
	})
	mux.HandleFunc("GET /v1/images/pulls", func(w http.ResponseWriter, r *http.Request) {
		pulls, err := s.cfg.Images.Pulls(r.Context(), r.URL.Query()["image"])
		if err != nil {
			s.fail(w, statusError(http.StatusServiceUnavailable, err.Error()))
			return
		}
		s.json(w, pulls)
	})
	mux.HandleFunc("POST /v1/images/pull", s.pull)
	mux.HandleFunc("DELETE /v1/images", func(w http.ResponseWriter, r *http.Request) { serveChange(s, w, r, s.cfg.Images.Remove) })
}

// pull streams the progress, one JSON object per line. It ends when the client goes, and with it pulls that nobody else
// waits for.
func (s *Server) pull(w http.ResponseWriter, r *http.Request) {
	var req PullRequest
	end, err := s.decode(w, r, &req)
	end() // pulls take their time
	if err != nil || len(req.Images) == 0 {
		s.fail(w, statusError(http.StatusBadRequest, fmt.Sprintf("the request names no images: %v", err)))
		return
	}
	enc, flush, began := json.NewEncoder(w), http.NewResponseController(w), false
	err = s.cfg.Images.Pull(r.Context(), req, func(e PullEvent) {
		if !began {
			w.Header().Set("Content-Type", "application/json")
			began = true
		}
		if err := errors.Join(enc.Encode(e), flush.Flush()); err != nil {
			s.cfg.Log.Debug("answer a request", "err", err)
		}
	})
	if err != nil && !began {
		s.fail(w, statusError(http.StatusServiceUnavailable, err.Error()))
	}
}

// Images returns all images of the machine.
func (c *Client) Images(ctx context.Context) (*ImageList, error) {
	list := &ImageList{}
	return list, c.getJSON(ctx, "/v1/images", list)
}

// RemoveImages removes images.
func (c *Client) RemoveImages(ctx context.Context, r ImageRemoval) (ImagesRemoved, error) {
	var out ImagesRemoved
	return out, c.send(ctx, http.MethodDelete, "/v1/images", r, &out)
}

// Pulls returns the pulls of these images that are under way.
func (c *Client) Pulls(ctx context.Context, refs []string) ([]ImagePull, error) {
	var pulls []ImagePull
	return pulls, c.getJSON(ctx, "/v1/images/pulls?"+url.Values{"image": refs}.Encode(), &pulls)
}

// Pull fetches images and calls each with the progress. It returns when each of them is here or could not be had.
func (c *Client) Pull(ctx context.Context, r PullRequest, each func(PullEvent) error) error {
	body, err := c.ask(ctx, http.MethodPost, "/v1/images/pull", r, firstByte)
	if err != nil {
		return err
	}
	defer body.Close()
	left := map[string]bool{}
	for _, ref := range r.Images {
		left[ref] = true
	}
	for all := c.objects(body); len(left) > 0; {
		var e PullEvent
		switch err := all.next(&e); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return ErrEnded
		case err != nil:
			return fmt.Errorf("read the progress: %w", err)
		}
		if e.State != PullPulling {
			delete(left, e.Image)
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}
