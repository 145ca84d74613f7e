package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"monopod/internal/model"
	"monopod/node/localapi"
)

// Images knows the images of this machine.
type Images interface {
	// Images returns all of them.
	Images(ctx context.Context) (*localapi.ImageList, error)
	// Pulls returns those of these references that are under way, as they are written.
	Pulls(ctx context.Context, refs []string) ([]model.Pull, error)
	// Pull pulls images and calls tell, never twice at once, until each of them is here or has failed. An error means that nothing was
	// done.
	Pull(ctx context.Context, r localapi.PullRequest, tell func(localapi.PullEvent)) error
	// Remove removes images. An error means that nothing could be done; the result of each image is in the answer.
	Remove(ctx context.Context, r localapi.ImageRemoval) (localapi.ImagesRemoved, error)
}

// imageRoutes adds what is about images.
func (s *Server) imageRoutes(mux *http.ServeMux) {
	if s.cfg.Images == nil {
		return
	}
	mux.HandleFunc("GET "+localapi.Self("images"), func(w http.ResponseWriter, r *http.Request) {
		list, err := s.cfg.Images.Images(r.Context())
		if err != nil {
			s.fail(w, statusError(http.StatusServiceUnavailable, err.Error()))
			return
		}
		s.json(w, list)
	})
	mux.HandleFunc("GET "+localapi.Self("pulls"), func(w http.ResponseWriter, r *http.Request) {
		pulls, err := s.cfg.Images.Pulls(r.Context(), r.URL.Query()["image"])
		if err != nil {
			s.fail(w, statusError(http.StatusServiceUnavailable, err.Error()))
			return
		}
		s.json(w, pulls)
	})
	mux.HandleFunc("POST "+localapi.Self("pulls"), s.pull)
	mux.HandleFunc("DELETE "+localapi.Self("images"), func(w http.ResponseWriter, r *http.Request) { serveChange(s, w, r, s.cfg.Images.Remove) })
}

// pull streams the progress, one JSON object per line. It ends when the client disconnects, and with it the pulls that no other client
// waits for.
func (s *Server) pull(w http.ResponseWriter, r *http.Request) {
	var req localapi.PullRequest
	err := s.intake.Small(w, r, &req)
	if err != nil || len(req.Images) == 0 {
		s.fail(w, statusError(http.StatusBadRequest, fmt.Sprintf("the request names no images: %v", err)))
		return
	}
	enc, flush, began := json.NewEncoder(w), http.NewResponseController(w), false
	err = s.cfg.Images.Pull(r.Context(), req, func(e localapi.PullEvent) {
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
