! Owners in Fortran: the runtime allocates for `matmul`, and the line that calls it owns the memory.
!
!   assemble  720,000 bytes, kept until the end
!   step      called twice; each time 720,000 bytes for the product and 524,288 bytes for a buffer of
!             the runtime, both at `product`, and 80,000 bytes at `lost`, never freed
module solver
contains
  subroutine assemble(n, a)
    integer, intent(in) :: n
    real(8), allocatable, intent(out) :: a(:,:)
    allocate(a(n,n))
    a = 1.0d0
  end subroutine

  subroutine step(a)
    real(8), intent(inout) :: a(:,:)
    real(8), allocatable :: tmp(:,:)
    real(8), pointer :: lost(:)
    tmp = matmul(a, a) ! product
    a = tmp / maxval(tmp)
    allocate(lost(10000)) ! lost
    lost = 1
  end subroutine
end module

program main
  use solver
  real(8), allocatable :: a(:,:)
  call assemble(300, a)
  call step(a)
  call step(a)
  if (a(1,1) < 0) stop 1
end program
