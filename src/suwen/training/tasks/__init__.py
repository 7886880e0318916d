"""What one step of training does: batches of rows or texts, towers, the losses over them."""
